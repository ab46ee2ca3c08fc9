// Token files: what preprocessing writes, and what it does with broken input.

#include <fstream>

#include "framework/base/files.h"
#include "framework/base/sha256.h"
#include "framework/preprocessing/preprocess.h"
#include "tests/golden/data_cases.h"

namespace tessera::golden {
namespace {

std::vector<std::string> words_of(const std::string& all) {
  std::istringstream stream(all);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string judge_files(const Json& recorded, const std::filesystem::path& folder) {
  for (const auto& file : recorded) {
    const std::string name = file["file"];
    if (!std::filesystem::exists(folder / name)) return name + " was not written";
    const auto bytes = read_file(folder / name);
    if (sha256(bytes) != file["sha256"])
      return text(name, " differs from what was recorded (", bytes.size(), " bytes, recorded ", file["bytes"], ")");
  }
  return "";
}

std::string judge_run(const DataFolder& data, const Json& run) {
  auto flags = flag_map(run["arguments"]);
  const auto& tokenizer = data.tokenizer(flags);
  preprocessing::PreprocessRequest request;
  request.inputs = {data.path() / flags.at("--input")};
  if (flags.count("--json-keys") != 0) request.json_keys = words_of(flags["--json-keys"]);
  const auto folder = data.scratch() / run["name"].get<std::string>();
  std::filesystem::create_directories(folder);
  request.output_prefix = folder / std::filesystem::path(flags.at("--output-prefix")).filename();
  request.append_eod = flags.count("--append-eod") != 0;
  request.workers = flags.count("--workers") != 0 ? std::stoi(flags["--workers"]) : 1;
  request.partitions = flags.count("--partitions") != 0 ? std::stoi(flags["--partitions"]) : 1;
  request.keep_sequential_samples = flags.count("--keep-sequential-samples") != 0;
  request.split_sentences = flags.count("--split-sentences") != 0;
  preprocessing::preprocess(tokenizer, request);
  return judge_files(run["files"], folder);
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string from_latin1(const std::string& utf8) {  // U+0000 to U+00FF back to bytes
  std::string bytes;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    bytes += byte < 0x80 ? utf8[i]
                         : static_cast<char>(((byte & 3U) << 6U) | (static_cast<unsigned char>(utf8[++i]) & 0x3FU));
  }
  return bytes;
}

std::string judge_broken(const DataFolder& data, const Json& one) {
  const auto folder = data.scratch() / ("broken_" + one["name"].get<std::string>());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "in.jsonl", std::ios::binary) << from_latin1(one["input"]);
  preprocessing::PreprocessRequest request;
  request.inputs = {folder / "in.jsonl"};
  request.output_prefix = folder / "out";
  request.append_eod = true;
  const auto bin = folder / "out_text_document.bin", idx = folder / "out_text_document.idx";
  std::string refused;
  try {
    preprocessing::preprocess(data.gpt2(), request);
  } catch (const ConfigError& error) {
    refused = error.what();
  }
  if (one["error"].is_null()) {
    if (!refused.empty()) return "was refused, but upstream takes it: " + refused;
    return read_file(bin) == from_hex(one["bin_hex"]) && read_file(idx) == from_hex(one["idx_hex"])
               ? ""
               : "other bytes than recorded";
  }
  if (refused.empty()) return "was taken, but upstream fails";
  if (refused.find("in.jsonl:") == std::string::npos) return "no file and line in: " + refused;
  const auto left = std::distance(std::filesystem::directory_iterator(folder), {});
  return left == 1 ? "" : "left a half-written file behind";
}

}  // namespace

void judge_preprocess(DataFolder& data) {
  if (!data.has("preprocess.json")) return;
  for (const auto& run : data.json("preprocess.json"))
    data.run("preprocess/" + run["name"].get<std::string>(), [&] { return judge_run(data, run); });
}

void judge_broken_input(DataFolder& data) {
  if (!data.has("broken_input.json")) return;
  for (const auto& one : data.json("broken_input.json"))
    data.run("broken_input/" + one["name"].get<std::string>(), [&] { return judge_broken(data, one); });
}

}  // namespace tessera::golden
