// Folders of checkpoints with one damaged file: each is refused with an error for people, or has the same elements.
//
//   damaged_folders DATA MAPPINGS [ROUNDS] [SEED]
//
// DATA: tests/data. The formats: our own by two writers, torch_dist of Megatron-LM, and a model of Transformers by
// torch.distributed.checkpoint, plain and as safetensors of each process. An hour: 500000 rounds.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/checkpoint/writer.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/megatron/megatron_dist_checkpoint.h"
#include "tests/interop/megatron/dist_writer.h"

// Called by AddressSanitizer. Memory that a length in a file asks for is refused, not taken.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:hard_rss_limit_mb=512:allocator_may_return_null=1";
}

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Contents = std::map<std::string, std::string>;  ///< of files, by path in the folder
using Elements = std::map<std::string, std::vector<float>>;

struct Case {
  std::string folder;
  std::function<std::unique_ptr<checkpoint::OpenedCheckpoint>()> open;
  /// Files whose checksums are verified: damage in them never gives other elements.
  std::function<bool(const std::string& file)> is_summed;
  Contents files = {};
  Elements elements = {};
};

Contents contents_of(const fs::path& folder) {
  Contents all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
  return all;
}

Elements elements_of(const checkpoint::OpenedCheckpoint& from) {
  Elements all;
  auto names = from.names();
  for (auto& name : from.optimizer_names()) names.push_back(name);
  for (const auto& name : names) {
    const auto shape = from.shape(name);
    if (shape.elements() > 1 << 20) throw ConfigError(name + ": is larger than any tensor of the case");
    auto& values = all[name];
    values.resize(static_cast<std::size_t>(shape.elements()));
    from.read(name, Tensor(std::span(values), shape));
  }
  all["iteration"] = {static_cast<float>(from.iteration())};
  return all;
}

/// Reads and verifies everything. Formats without checksums say so with a ConfigError.
Elements verified_elements(const Case& one) {
  const auto opened = one.open();
  try {
    opened->verify();
  } catch (const ConfigError& error) {
    if (std::string(error.what()).find("have no checksums") == std::string::npos) throw;
  }
  return elements_of(*opened);
}

class Damage {
 public:
  explicit Damage(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t count) { return count == 0 ? 0 : random_() % count; }

  /// What was done, for messages.
  std::string change(std::string& bytes) {
    const auto at = below(bytes.size()), length = 1 + below(std::min<std::size_t>(bytes.size() - at, 64));
    switch (below(8)) {
      case 0:
        bytes.resize(at);
        return text("cut at ", at);
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        return text("bit of byte ", at);
      case 2:
        bytes.insert(at, bytes.substr(at, length));
        return text(length, " bytes at ", at, " twice");
      case 3:
        bytes.erase(at, length);
        return text(length, " bytes at ", at, " gone");
      case 4:
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), length, '\0');
        return text(length, " zeros at ", at);
      case 5:
        return number(bytes, at);
      case 6:
        return digit(bytes, at);
      default:
        bytes[at] = static_cast<char>(below(256));
        return text("byte ", at);
    }
  }

 private:
  /// A length or position of another size.
  std::string number(std::string& bytes, std::size_t at) {
    constexpr std::uint64_t values[] = {0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, ~0ULL};
    const auto value = values[below(std::size(values))];
    const auto size = std::min(std::size_t{1} << below(4), bytes.size() - at);
    for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
    return text("the number ", value, " in ", size, " bytes at ", at);
  }
  /// Another digit in a text, for JSON.
  std::string digit(std::string& bytes, std::size_t at) {
    const auto found = bytes.find_first_of("0123456789", at);
    if (found == std::string::npos) return "nothing";
    bytes[found] = static_cast<char>('0' + below(10));
    return text("a digit at ", found);
  }

  std::mt19937_64 random_;
};

/// One of the outcomes; ends the program with a message for any other.
enum class Outcome { refused, same, other };

Outcome outcome_of(const Case& one, const std::string& file, const std::string& what) {
  const auto fail = [&](const std::string& why) {
    std::fprintf(stderr, "%s/%s: %s: %s\n", one.folder.c_str(), file.c_str(), what.c_str(), why.c_str());
    std::exit(1);
  };
  try {
    const auto elements = verified_elements(one);
    if (elements == one.elements) return Outcome::same;
    if (one.is_summed(file)) fail("other elements, without an error");
    return Outcome::other;
  } catch (const BugError& error) {
    fail(text("a BugError: ", error.what()));
  } catch (const Error& error) {
    if (std::string(error.what()).empty()) fail("an error without words");
    return Outcome::refused;
  } catch (const std::exception& error) {
    fail(text("an exception that is none of ours: ", error.what()));
  }
  return Outcome::other;
}

void write_content(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

Outcome damage_one(const Case& one, Damage& damage) {
  const auto victim = std::next(one.files.begin(), static_cast<std::ptrdiff_t>(damage.below(one.files.size())));
  const auto path = fs::path(one.folder) / victim->first;
  std::string what;
  if (damage.below(40) == 0) {
    fs::remove(path);
    what = "removed";
  } else {
    auto bytes = victim->second;
    if (bytes.empty()) return Outcome::same;
    for (auto times = 1 + damage.below(2); times > 0 && !bytes.empty(); --times) what += damage.change(bytes) + "; ";
    write_content(path, bytes);
  }
  const auto outcome = outcome_of(one, victim->first, what);
  write_content(path, victim->second);
  return outcome;
}

void write_native() {
  std::vector<float> elements(48);
  std::iota(elements.begin(), elements.end(), 1.F);
  checkpoint::CheckpointWriter writer("native", "", 3, 2);
  writer.begin();
  std::vector<checkpoint::WrittenPart> parts;
  for (const std::int64_t part : {0, 1}) {
    std::vector<checkpoint::TensorRange> ranges;
    for (const char* name : {"w", "optimizer.m.w"})
      ranges.push_back({name,
                        Shape{6, 4},
                        {3 * part, 0},
                        Tensor(std::span(elements).subspan(static_cast<std::size_t>(12 * part), 12), Shape{3, 4})});
    parts.push_back(writer.write(static_cast<int>(part), checkpoint::LiveState(std::move(ranges))));
  }
  writer.commit(parts, {{"state.json", "{}"}});
}

void write_torch_dist() {
  const std::string fc2 = "decoder.layers.mlp.linear_fc2.weight", norm = "decoder.final_layernorm.weight";
  std::vector<float> many(8);
  std::iota(many.begin(), many.end(), 1.F);
  megatron::DistWriter writer;
  writer.add(fc2, {2, 2, 4}, {0, 0, 2}, {2, 3, 6, 7}, {1, 2, 2});
  writer.add(fc2, {2, 2, 4}, {0, 0, 0}, {9, 1, 4, 5}, {1, 2, 2});
  writer.add(fc2, {2, 2, 4}, {1, 0, 0}, many, {1, 2, 4});
  writer.add("optimizer.state.fp32_param." + norm, {2}, {0}, {1.5F, 2.5F}, {2});
  writer.add("optimizer.state.exp_avg." + norm, {1, 2}, {0, 0}, {3, 4}, {1, 2}, {2});
  writer.add(norm, {2}, {0}, {1, 2}, {2});
  writer.write();
}

std::vector<Case> all_cases(const fs::path& data, const options::Mappings& mappings) {
  const auto everything = [](const std::string&) { return true; };
  const auto but_index = [](const std::string& file) { return file != ".metadata" && file != "config.json"; };
  const auto nothing = [](const std::string&) { return false; };
  const auto transformers = [&mappings](const std::string& folder) {
    return [&mappings, folder] { return std::make_unique<hugging_face::HuggingFaceModel>(folder, mappings); };
  };
  write_native();
  fs::create_directory("dist");
  fs::current_path("dist");
  write_torch_dist();
  fs::remove("one.pt");
  fs::current_path("..");
  for (const char* form : {"plain", "parts"}) {
    fs::copy(data / "torch_dcp" / form, form);
    fs::copy_file(data / "torch_dcp/whole/config.json", fs::path(form) / "config.json");
  }
  std::vector<Case> cases = {
      {"native/iter_0000003",
       [] {
         return std::make_unique<checkpoint::NativeCheckpoint>(checkpoint::Checkpoint::open("native/iter_0000003"));
       },
       everything},
      {"dist", [&mappings] { return std::make_unique<megatron::MegatronDistCheckpoint>("dist", mappings); }, but_index},
      {"plain", transformers("plain"), but_index},
      {"parts", transformers("parts"), nothing}};
  for (auto& one : cases) {
    one.files = contents_of(one.folder);
    one.elements = verified_elements(one);
  }
  return cases;
}

int run(const fs::path& data, const fs::path& mappings_folder, std::int64_t rounds, std::uint64_t seed) {
  const options::Mappings mappings(mappings_folder);
  auto name = (fs::temp_directory_path() / "tessera.damaged.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return 1;
  fs::current_path(name);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const auto cases = all_cases(data, mappings);
  Damage damage(seed);
  std::map<Outcome, std::int64_t> counts;
  for (std::int64_t i = 0; i < rounds; ++i) ++counts[damage_one(cases[damage.below(cases.size())], damage)];
  std::printf("%lld refused, %lld with the same elements, %lld with others where there are no checksums\n",
              static_cast<long long>(counts[Outcome::refused]), static_cast<long long>(counts[Outcome::same]),
              static_cast<long long>(counts[Outcome::other]));
  fs::current_path("/");
  fs::remove_all(name);
  return counts[Outcome::refused] > rounds / 4 ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::int64_t rounds = argc > 3 ? std::atoll(argv[3]) : 1000;
  const std::uint64_t seed = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : std::random_device{}();
  return tessera::run(std::filesystem::absolute(argv[1]), std::filesystem::absolute(argv[2]), rounds, seed);
}
