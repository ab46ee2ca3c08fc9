#include "tests/golden/mm_checkpoints.h"

#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/sha256.h"
#include "framework/interop/mindspeed_mm/mm_convert.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/options/yaml.h"

namespace tessera {
namespace golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using mindspeed_mm::MmCommand;

constexpr const char* kept_release = "2.1.0";

/// A folder for what the commands write.
class ScratchFolder {
 public:
  ScratchFolder() {
    auto name = (fs::temp_directory_path() / "tessera.mm.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw IoError(text(name, ": cannot be created"));
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path next() { return path_ / std::to_string(count_++); }

 private:
  fs::path path_;
  int count_ = 0;
};

Json described(const torch::TorchFile& file, const torch::PickleNode& node, const std::string& name) {
  const auto header = file.header(node, name);
  std::vector<std::byte> elements(header.bytes());
  file.read(node, name, elements);
  const auto dims = header.shape().dims();
  return {{"shape", std::vector<std::int64_t>(dims.begin(), dims.end())},
          {"dtype", name_of(header.dtype())},
          {"sha256", sha256({reinterpret_cast<const char*>(elements.data()), elements.size()})}};
}

/// As index.json describes the files of a folder.
Json content_of(const fs::path& folder) {
  Json all = Json::object();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".pt") continue;
    const torch::TorchFile file(entry.path());
    auto& of_file = all[fs::relative(entry.path(), folder).string()] = Json::object();
    const auto& items = file.root().items;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      auto& value = of_file[items[i]->text];
      if (items[i + 1]->kind != torch::PickleNode::Kind::dict) {
        value = items[i + 1]->real;
        continue;
      }
      value = Json::object();
      const auto& tensors = items[i + 1]->items;
      for (std::size_t t = 0; t + 1 < tensors.size(); t += 2)
        value[tensors[t]->text] = described(file, *tensors[t + 1], tensors[t]->text);
    }
  }
  return all;
}

/// The names of the first tensors that differ.
std::string differences(const Json& ours, const Json& theirs) {
  std::string all;
  int count = 0;
  for (const auto& patch : Json::diff(theirs, ours))
    if (count++ < 3) all += " " + patch.at("op").get<std::string>() + " " + patch.at("path").get<std::string>();
  return all;
}

class MmCases {
 public:
  explicit MmCases(const fs::path& folder) : folder_(folder), index_(Json::parse(read_file(folder / "index.json"))) {}

  std::vector<CaseResult> run() {
    for (const auto& [name, entry] : index_.at("hf_to_mm").items()) {
      judge("hf_to_mm/" + name, [&, &layout = entry] { return to_mm(layout); });
      if (fs::exists(folder_ / "mm" / name))
        judge("mm_to_hf/" + name, [&, &layout = entry, &mm = name] { return back(mm, layout); });
    }
    std::set<std::pair<std::string, std::string>> pairs;
    const auto resplits = index_.value("resplit", Json::array()), refusals = index_.value("refused", Json::array());
    for (const auto& entry : resplits) {
      const std::pair pair{entry.at("source").get<std::string>(), entry.at("target").get<std::string>()};
      if (pairs.insert(pair).second)
        judge("resplit/" + pair.first + "/" + pair.second, [&] { return resplit(pair.first, pair.second); });
    }
    for (const auto& entry : refusals)
      if (entry.at("release") == kept_release)
        judge("refused/" + entry.at("what").get<std::string>(), [&, &layout = entry] { return refused(layout); });
    if (index_.contains("save_vit_only")) judge("save_vit_only", [&] { return tower_alone(); });
    return std::move(results_);
  }

 private:
  void judge(const std::string& name, const std::function<std::string()>& wrong) {
    std::string summary;
    try {
      summary = wrong();
    } catch (const std::exception& error) {
      summary = error.what();
    }
    for (auto& c : summary)
      if (c == '\n') c = ' ';
    results_.push_back({name, summary.empty() ? CaseResult::Verdict::passed : CaseResult::Verdict::failed, summary});
  }

  void convert(MmCommand command, const std::string& options, const std::string& release = kept_release) const {
    mindspeed_mm::mm_convert(command, options::parse_yaml("cfg:\n" + options, "command"), release, mappings_);
  }
  static std::string layout(const std::string& map, const Json& entry) {
    return text("  ", map, ": {llm_pp_layers: ", entry.at("llm_pp_layers").dump(),
                ", vit_pp_layers: ", entry.at("vit_pp_layers").dump(), ", tp_size: ", entry.at("tp_size").dump(),
                "}\n");
  }
  fs::path hf_of(const Json& entry) const { return folder_ / text("hf_", entry.value("hf", std::string("untied"))); }
  fs::path write_mm(const Json& entry, const std::string& more = "", const std::string& release = kept_release) {
    const auto out = scratch_.next();
    convert(MmCommand::hf_to_mm,
            text("  mm_dir: ", out.string(), "\n  hf_config: {hf_dir: ", hf_of(entry).string(), "}\n",
                 layout("parallel_config", entry), more),
            release);
    return out;
  }

  std::string to_mm(const Json& entry) {
    const auto out = write_mm(entry);
    const auto ours = content_of(out);
    if (ours != entry.at("tensors")) return "differs:" + differences(ours, entry.at("tensors"));
    for (const auto& [name, words] : entry.at("files").items())
      if (read_file(out / name) != words.get<std::string>()) return name + " differs";
    const auto others = entry.value("other_releases", Json::object());
    for (const auto& [release, says] : others.items()) {
      // What differs is an error of the release if tensors are missing; those are never left out here.
      const bool differs = says.is_object() && says.value("missing", 0) == 0;
      if ((content_of(write_mm(entry, "", release)) != ours) != differs) return release + ": other tensors";
    }
    return "";
  }

  std::string back(const std::string& name, const Json& entry) {
    const auto out = scratch_.next();
    const auto hf = hf_of(entry);
    convert(MmCommand::mm_to_hf,
            text("  save_hf_dir: ", out.string(), "\n  mm_dir: ", (folder_ / "mm" / name).string(),
                 "\n  hf_config: {hf_dir: ", hf.string(), "}\n", layout("parallel_config", entry)));
    for (const auto& file : list_folder(hf))
      if (!fs::exists(out / file.filename()) || read_file(out / file.filename()) != read_file(file))
        return file.filename().string() + " differs";
    return list_folder(out).size() == list_folder(hf).size() ? "" : "has other files";
  }

  std::string resplit(const std::string& source, const std::string& target) {
    const auto out = scratch_.next();
    const auto &from = index_.at("hf_to_mm").at(source), &to = index_.at("hf_to_mm").at(target);
    convert(MmCommand::resplit,
            text("  source_dir: ", (folder_ / "mm" / source).string(), "\n  target_dir: ", out.string(), "\n",
                 layout("source_parallel_config", from), layout("target_parallel_config", to)));
    const auto ours = content_of(out);
    return ours == to.at("tensors") ? "" : "differs from hf_to_mm:" + differences(ours, to.at("tensors"));
  }

  std::string refused(const Json& entry) {
    const bool is_flat = entry.at("llm_pp_layers").at(0).is_number();
    try {
      write_mm(entry);
    } catch (const ConfigError& error) {
      return is_flat ? error.what() : "";
    }
    return is_flat ? "" : "was not refused";
  }

  std::string tower_alone() {
    const auto& expected = index_.at("save_vit_only");
    const auto content = content_of(
        write_mm(index_.at("hf_to_mm").at(expected.at("layout").get<std::string>()), "  save_vit_only: true\n"));
    Json names = Json::object();
    for (const auto& [file, parts] : content.items())
      for (const auto& [name, tensor] : parts.at("model").items()) names[file].push_back(name);
    return names == expected.at("tensors") ? "" : "has other tensors";
  }

  fs::path folder_;
  Json index_;
  options::Mappings mappings_;
  ScratchFolder scratch_;
  std::vector<CaseResult> results_;
};

}  // namespace
}  // namespace golden

bool is_mm_checkpoints(const std::filesystem::path& folder) {
  const auto index = folder / "index.json";
  return std::filesystem::exists(index) && nlohmann::json::parse(read_file(index), nullptr, false).contains("hf_to_mm");
}

std::vector<CaseResult> run_mm_checkpoint_cases(const std::filesystem::path& folder) {
  return golden::MmCases(folder).run();
}

}  // namespace tessera
