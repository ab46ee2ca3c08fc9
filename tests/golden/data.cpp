#include "tests/golden/data.h"

#include <unistd.h>

#include <fstream>

#include "framework/base/files.h"
#include "framework/data/bpe.h"
#include "framework/data/unicode_classes.h"
#include "framework/data/utf8.h"
#include "tests/golden/data_cases.h"

namespace tessera {

namespace golden {

DataFolder::Scratch::Scratch() {
  auto name = (std::filesystem::temp_directory_path() / "tessera_golden.XXXXXX").string();
  must(mkdtemp(name.data()) != nullptr, "a temporary folder can be made");
  path = name;
}

DataFolder::Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

DataFolder::DataFolder(std::filesystem::path folder) : folder_(std::filesystem::absolute(std::move(folder))) {}

Json DataFolder::json(const std::string& name) const { return Json::parse(read_file(folder_ / name)); }

std::vector<Json> DataFolder::lines(const std::string& name) const {
  std::ifstream file(folder_ / name);
  std::vector<Json> all;
  for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
  return all;
}

std::filesystem::path DataFolder::find_gpt2() const {
  for (const auto* name : {"gpt2-merges.txt", "merges.txt"}) {
    if (has(text("gpt2/", name))) return folder_ / "gpt2" / name;
    for (auto above = folder_; above != above.root_path(); above = above.parent_path())
      if (const auto file = above / "data" / "gpt2" / name; std::filesystem::exists(file)) return file;
  }
  throw NotSupported{"no gpt2-merges.txt in gpt2/ or in data/gpt2/ of a folder above"};
}

// GPT-2 numbers its tokens 256 bytes, then merges in order, then the end of a text.
void DataFolder::make_vocabulary(const std::filesystem::path& merges) const {
  const ByteSpelling spelling;
  Json vocabulary;
  std::vector<std::pair<char32_t, unsigned char>> bytes;
  for (int b = 0; b < 256; ++b)
    bytes.emplace_back(spelling.of(static_cast<unsigned char>(b)), static_cast<unsigned char>(b));
  std::sort(bytes.begin(), bytes.end());
  int id = 0;
  for (const auto& [spelt, byte] : bytes) vocabulary[to_utf8(spelt)] = id++;
  std::ifstream lines(merges);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.substr(0, 8) == "#version") continue;
    line.erase(line.find(' '), 1);
    vocabulary[line] = id++;
  }
  vocabulary["<|endoftext|>"] = id;
  std::ofstream(scratch() / "vocab.json") << vocabulary;
}

const Tokenizer& DataFolder::gpt2() const {
  return tokenizer({{"--tokenizer-type", "GPT2BPETokenizer"}, {"--vocab-file", ""}, {"--merge-file", ""}});
}

const Tokenizer& DataFolder::tokenizer(const std::map<std::string, std::string>& flags) const {
  const auto type = flags.at("--tokenizer-type");
  if (type != "GPT2BPETokenizer" && type != "NullTokenizer") throw NotSupported{type + " is not built yet"};
  const bool gpt2 = type == "GPT2BPETokenizer";
  auto& made = tokenizers_[gpt2 ? type : type + flags.at("--vocab-size")];
  if (made) return *made;
  Value recipe;
  const auto set = [&](const std::string& option, const std::string& value) {
    recipe.set("dataset_config." + option, Value::of(value, {"golden", 0, "", 1}));
  };
  set("tokenizer_type", type);
  if (gpt2) {
    const auto merges = find_gpt2();
    auto vocabulary = merges.parent_path() / (merges.filename() == "merges.txt" ? "vocab.json" : "gpt2-vocab.json");
    if (!std::filesystem::exists(vocabulary)) {
      make_vocabulary(merges);
      vocabulary = scratch() / "vocab.json";
    }
    set("vocab_file", vocabulary.string());
    set("merge_file", merges.string());
  } else {
    set("vocab_size", flags.at("--vocab-size"));
  }
  Report report;
  Group group(recipe, "dataset_config", report);
  made = tokenizers().read(group).make();
  return *made;
}

void DataFolder::run(const std::string& name, const std::function<std::string()>& judge) {
  CaseResult result{name, CaseResult::Verdict::failed, ""};
  try {
    result.story = judge();
    if (result.story.empty()) result.verdict = CaseResult::Verdict::passed;
  } catch (const NotSupported& missing) {
    result.verdict = CaseResult::Verdict::not_supported;
    result.story = missing.what;
  } catch (const std::exception& error) {
    result.story = error.what();
  }
  results.push_back(result);
}

namespace {

std::string judge_classes(const DataFolder& data) {
  const UnicodeClasses classes;
  std::vector<UnicodeClass> wanted(0x110000, UnicodeClass::other);
  for (const auto& row : data.lines("unicode_classes.jsonl")) {
    const auto kind = row[2] == "letter"   ? UnicodeClass::letter
                      : row[2] == "number" ? UnicodeClass::number
                                           : UnicodeClass::space;
    for (auto code = row[0].get<std::size_t>(); code <= row[1].get<std::size_t>(); ++code) wanted[code] = kind;
  }
  for (std::size_t code = 0; code < wanted.size(); ++code)
    if (classes.of(static_cast<char32_t>(code)) != wanted[code])
      return text("code point ", code, " is of another class");
  return "";
}

std::string judge_text(const Tokenizer& tokenizer, Tokenizer::Encoder& encoder, const std::string& words,
                       const Json& wanted) {
  std::vector<std::int32_t> ids;
  encoder.encode(words, ids);
  const auto expected = wanted.get<std::vector<std::int32_t>>();
  for (std::size_t i = 0; i < std::max(ids.size(), expected.size()); ++i) {
    const auto id = [i](const auto& list) { return i < list.size() ? std::to_string(list[i]) : "the end"; };
    if (id(ids) != id(expected)) return text("token ", i, " is ", id(ids), ", recorded is ", id(expected));
  }
  if (tokenizer.bytes(ids) != words || tokenizer.decode(ids) != words) return "does not decode to its own text";
  std::string streamed;
  const auto decoder = tokenizer.decoder();
  for (const auto id : ids) streamed += decoder->push(id);
  return streamed + decoder->finish() == words ? "" : "does not decode to its own text, token after token";
}

}  // namespace

void judge_ids(DataFolder& data) {
  if (data.has("unicode_classes.jsonl")) data.run("unicode_classes", [&] { return judge_classes(data); });
  if (!data.has("gpt2_ids.jsonl")) return;
  std::map<std::string, std::vector<Json>> files;
  for (auto& row : data.lines("gpt2_ids.jsonl")) files[row["file"]].push_back(row);
  for (const auto& [file, rows] : files)
    data.run("gpt2_ids/" + file, [&, name = file, &all = rows]() -> std::string {
      const auto& tokenizer = data.gpt2();
      const auto encoder = tokenizer.encoder();
      const auto texts = data.lines("corpus/" + name + ".jsonl");
      for (const auto& row : all) {
        const auto& words = texts.at(row["line"].get<std::size_t>())["text"];
        const auto one = words.is_array() ? words.at(row["part"].get<std::size_t>()) : words;
        const auto wrong = judge_text(tokenizer, *encoder, one, row["ids"]);
        if (!wrong.empty()) return text("line ", row["line"], " part ", row["part"], ": ", wrong);
      }
      return "";
    });
  for (const auto& entry : std::filesystem::directory_iterator(data.path())) {
    const auto name = entry.path().filename().string();
    const auto at = name.find("_ids.jsonl");
    if (at == std::string::npos || name == "gpt2_ids.jsonl") continue;
    data.run(name.substr(0, at + 4),
             [&]() -> std::string { throw NotSupported{"this kind of tokenizer is not built yet"}; });
  }
}

}  // namespace golden

std::vector<CaseResult> run_data_cases(const std::filesystem::path& folder) {
  golden::DataFolder data(folder);
  golden::judge_ids(data);
  golden::judge_preprocess(data);
  golden::judge_broken_input(data);
  golden::judge_gptdataset(data);
  golden::judge_masks(data);
  golden::judge_samplers(data);
  return std::move(data.results);
}

}  // namespace tessera
