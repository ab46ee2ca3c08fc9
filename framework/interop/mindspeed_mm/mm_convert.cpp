#include "framework/interop/mindspeed_mm/mm_convert.h"

#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/new_folder.h"
#include "framework/checkpoint/find.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/mindspeed_mm/mm_folder.h"
#include "framework/interop/mindspeed_mm/mm_native.h"
#include "framework/interop/mindspeed_mm/mm_transformers.h"
#include "framework/interop/mindspeed_mm/mm_writer.h"

namespace tessera::mindspeed_mm {
namespace {

namespace fs = std::filesystem;

constexpr const char* table_name = "weights/mindspeed_mm.yaml";

/// The config.json of the folder of Transformers that hf_config.hf_dir names.
fs::path config_in(const std::string& folder) {
  auto file = fs::path(folder) / "config.json";
  if (!fs::exists(file))
    throw ConfigError(text("hf_config.hf_dir is ", folder, ": ",
                           fs::is_directory(folder) ? "it has no config.json" : "no such folder",
                           "; give the folder of Hugging Face Transformers that has the model"));
  return file;
}

void must_be_divisible(const MmSource& source, const MmLayout& layout) {
  if (const auto wrong = indivisible(source, layout); !wrong.empty())
    throw ConfigError(
        text("tp_size ", layout.tensor_parallel, " does not divide the model:\n  ", joined(wrong, "\n  ")));
}

/// The type of the weights that a config.json names; nothing: it names none.
std::optional<DType> type_in(const fs::path& config) {
  const auto json = parse_json(read_file(config));
  for (const char* key : {"dtype", "torch_dtype"})
    if (const auto* type = json.is_object() ? json.find(key) : nullptr; type != nullptr && type->is_string())
      return dtype_named(type->string());
  return std::nullopt;
}

/// One conversion: its options, and what they say about the model.
class Conversion {
 public:
  Conversion(MmCommand command, const options::Value& tree, const std::string& release,
             const options::Mappings& mappings)
      : tree_(tree), mappings_(mappings), table_(mappings.table(table_name)), release_(release) {
    concatenates_ = table_.concatenates_tower_qkv(release);
    options::Report report;
    options_ = read_options(command, tree, report);
    report.must_be_good();
  }

  void hf_to_mm() {
    const auto& out = options_.hf_to_mm.mm_dir;
    const auto model = fitting_model(options_.hf_to_mm.tower_qkv, options_.parallel.layout(), "parallel_config");
    const TransformersSource source(options_.hf.hf_dir, mappings_, model, table_);
    write(out, options_.hf.hf_dir, source, options_.parallel.layout(), options_.hf_to_mm.save_vit_only);
  }

  void mm_to_hf() {
    const auto& o = options_.mm_to_hf;
    const auto model = fitting_model(o.tower_qkv, options_.parallel.layout(), "parallel_config");
    if (!megatron::MegatronFormat().find(o.mm_dir)) return run_to_hf(model);
    const MmFolder source(o.mm_dir, options_.parallel.layout(), table_, model.is_tied());
    const auto& embedding = source.tensors().at(table_.tied().second).shape;
    if (embedding != model.embedding())
      throw ConfigError(text(o.mm_dir, ": the embedding is ", embedding, "; ", config_in(options_.hf.hf_dir).string(),
                             " says ", model.embedding(), " (vocab_size, hidden_size)"));
    if (!o.tower_qkv)
      tell(text(o.mm_dir, ": ", table_.assumption_of(release_),
                "; if it is of another one, name that with --mm-version"));
    write_hf(source, model);
  }

  void resplit() {
    const auto& o = options_.resplit;
    const auto from = options_.parallel.layout(), to = options_.target.layout();
    refuse_other_sums(from, to);
    auto tied = o.tie_word_embeddings;
    if (!options_.hf.hf_dir.empty()) {
      const auto is_tied = fitting_model(std::nullopt, to, "target_parallel_config").is_tied();
      tied = tied.value_or(is_tied);
    }
    const MmFolder source(o.source_dir, from, table_, tied);
    write(o.target_dir, o.source_dir, source, to, false);
    if (!tied && source.is_tied() && from.stages() > 1 && to.stages() == 1)
      tell(text("the output layer of ", o.source_dir, " equals the embedding, so it is taken for the copy of a tied ",
                "one and left out; if the model has its own, give tie_word_embeddings: false or hf_config.hf_dir"));
  }

  std::vector<std::string> lines;

 private:
  void tell(std::string line) { lines.push_back(std::move(line)); }

  void write_hf(const MmSource& source, const MmModel& model) {
    const auto& o = options_.mm_to_hf;
    const std::array<fs::path, 2> inputs = {o.mm_dir, options_.hf.hf_dir};
    const fs::path out = o.save_hf_dir;
    refuse_overwriting(inputs, {&out, 1});
    make_new_folder(out,
                    [&](const fs::path& folder) { write_transformers(folder, source, model, options_.hf.hf_dir); });
    tell(text(o.save_hf_dir, ": the model of ", o.mm_dir));
  }

  /// The newest checkpoint of a run of Tessera, or a checkpoint.
  void run_to_hf(const MmModel& model) {
    const auto found = checkpoint::find_checkpoints(options_.mm_to_hf.mm_dir, {}).front();
    const auto opened = checkpoint::open_checkpoint(found, mappings_);
    if (const auto left_out = opened->about_left_out(); !left_out.empty())
      throw ConfigError(text(found.folder.string(), ": ", left_out, "; give a checkpoint that has all weights"));
    tell(text(found.folder.string(), ": a checkpoint of Tessera, which has no layout"));
    write_hf(NativeSource(*opened, model, type_in(config_in(options_.hf.hf_dir)), table_), model);
  }

  /// The model of the folder of Transformers. Throws ConfigError if `layout` does not fit it.
  MmModel fitting_model(std::optional<TowerQkv> qkv, const MmLayout& layout, const std::string& map) {
    const bool concatenated = qkv ? *qkv == TowerQkv::concatenated : concatenates_;
    MmModel model(config_in(options_.hf.hf_dir), mappings_, table_, concatenated);
    auto mistakes = model.mistakes(layout, names_of_layers(map));
    for (auto& mistake : mistakes)
      if (mistake.option.find('.') == std::string::npos) mistake.option = map + "." + mistake.option;
    report(mistakes);
    return model;
  }

  void refuse_other_sums(const MmLayout& from, const MmLayout& to) const {
    const auto ours = names_of_layers("source_parallel_config"), theirs = names_of_layers("target_parallel_config");
    std::vector<options::Finding> all;
    for (std::size_t i = 0; i < ours.size(); ++i)
      if (const auto a = from.towers[i].sum(), b = to.towers[i].sum(); a != b)
        all.push_back({theirs[i],
                       text(theirs[i], " is ", words(to.towers[i]), ", ", b, " layers; ", ours[i], " is ",
                            words(from.towers[i]), ", ", a),
                       "give both the layers of the model"});
    report(all);
  }

  void report(const std::vector<options::Finding>& mistakes) const {
    options::Report all;
    report_mistakes(mistakes, tree_, all);
    all.must_be_good();
  }

  void write(const fs::path& out, const fs::path& in, const MmSource& source, const MmLayout& layout,
             bool without_text) {
    must_be_divisible(source, layout);
    refuse_overwriting({&in, 1}, {&out, 1});
    make_new_folder(out,
                    [&](const fs::path& folder) { write_mm_folder(folder, source, layout, table_, without_text); });
    tell(text(out.string(), ": MindSpeed-MM ", release_, ", ", layout.tensor_parallel, " tensor-parallel x ",
              layout.stages(), " pipeline ranks, ", source.tensors().size(), " tensors"));
    if (layout.chunks() > 1)
      tell(text("the lists of layers have ", layout.chunks(),
                " chunks of stages, [chunk][stage]; num_layer_list of a recipe is [stage][chunk]"));
  }

  const options::Value& tree_;
  const options::Mappings& mappings_;
  MmTable table_;
  std::string release_;
  bool concatenates_ = false;
  MmOptions options_;
};

}  // namespace

void write_mindspeed_mm(const fs::path& out, const checkpoint::WeightSource& weights,
                        const options::Value& model_config, const MmLayout& layout, std::optional<DType> type,
                        const options::Mappings& mappings) {
  const MmTable table(mappings.table(table_name));
  const auto names = hugging_face::hugging_face_table(mappings, family_name).find("weights")->scalar;
  const MmModel model({model_config, family_name, names}, weights.folder().string(), mappings, table, false);
  const NativeSource source(weights, model, type, table);
  auto found = mistakes(layout, names_of_layers("parallel_config"));
  if (found.empty()) found = model.mistakes(layout, names_of_layers("parallel_config"));
  options::refuse(weights.folder().string(), found);
  must_be_divisible(source, layout);
  make_new_folder(out, [&](const fs::path& folder) { write_mm_folder(folder, source, layout, table, false); });
}

std::vector<std::string> releases(const options::Mappings& mappings) {
  return MmTable(mappings.table(table_name)).releases();
}

std::vector<std::string> mm_convert(MmCommand command, const options::Value& tree, const std::string& release,
                                    const options::Mappings& mappings) {
  Conversion conversion(command, tree, release, mappings);
  if (command == MmCommand::hf_to_mm) conversion.hf_to_mm();
  if (command == MmCommand::mm_to_hf) conversion.mm_to_hf();
  if (command == MmCommand::resplit) conversion.resplit();
  return std::move(conversion.lines);
}

}  // namespace tessera::mindspeed_mm
