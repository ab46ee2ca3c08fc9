#include "tests/golden/data.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "framework/base/files.h"
#include "framework/tokenizers/bpe.h"
#include "framework/unicode/unicode_classes.h"
#include "framework/unicode/utf8.h"
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
  const tokenizers::ByteSpelling spelling;
  Json vocabulary;
  std::vector<std::pair<char32_t, unsigned char>> bytes;
  for (int b = 0; b < 256; ++b)
    bytes.emplace_back(spelling.of(static_cast<unsigned char>(b)), static_cast<unsigned char>(b));
  std::sort(bytes.begin(), bytes.end());
  int id = 0;
  for (const auto& [spelt, byte] : bytes) vocabulary[unicode::to_utf8(spelt)] = id++;
  std::ifstream lines(merges);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.substr(0, 8) == "#version") continue;
    line.erase(line.find(' '), 1);
    vocabulary[line] = id++;
  }
  vocabulary["<|endoftext|>"] = id;
  std::ofstream(scratch() / "vocab.json") << vocabulary;
}

std::pair<std::filesystem::path, std::filesystem::path> DataFolder::gpt2_files() const {
  const auto merges = find_gpt2();
  auto vocabulary = merges.parent_path() / (merges.filename() == "merges.txt" ? "vocab.json" : "gpt2-vocab.json");
  if (!std::filesystem::exists(vocabulary)) {
    vocabulary = scratch() / "vocab.json";
    if (!std::filesystem::exists(vocabulary)) make_vocabulary(merges);
  }
  return {vocabulary, merges};
}

const tokenizers::Tokenizer& DataFolder::gpt2() const {
  return tokenizer({{"--tokenizer-type", "GPT2BPETokenizer"}, {"--vocab-file", ""}, {"--merge-file", ""}});
}

std::string DataFolder::tokenizer_file(const std::string& flag, const std::string& given) const {
  if (!given.empty() && has(given)) return (folder_ / given).string();
  if (flag == "--vocab-file") return gpt2_files().first.string();
  if (flag == "--merge-file") return gpt2_files().second.string();
  return (folder_ / given).string();
}

const tokenizers::Tokenizer& DataFolder::tokenizer(const std::map<std::string, std::string>& flags) const {
  const auto type = flags.at("--tokenizer-type");
  const auto registry = tokenizers::tokenizers();
  const auto types = registry.types();
  if (std::none_of(types.begin(), types.end(), [&](const auto& one) { return one.first == type; }))
    throw NotSupported{type + " is not built yet"};
  options::Value recipe;
  std::string key;
  for (const auto& [flag, given] : flags) {
    const bool file = flag == "--vocab-file" || flag == "--merge-file" || flag == "--tokenizer-model";
    if (!file && flag != "--tokenizer-type" && flag != "--vocab-size" && flag != "--vocab-extra-ids" &&
        flag != "--split-special-tokens" && flag.rfind("--tiktoken-", 0) != 0)
      continue;
    const auto value = file ? tokenizer_file(flag, given) : given;
    if (file && !given.empty()) given_paths_[value] = given;
    key += flag + "=" + value + "\n";
    auto option = flag.substr(2);
    std::replace(option.begin(), option.end(), '-', '_');
    recipe.set("dataset_config." + option, options::Value::of(value, {"golden", 0, "", 1}));
  }
  auto& made = tokenizers_[key];
  if (made) return *made;
  options::Report report;
  options::Group group(recipe, "dataset_config", report);
  const auto choice = registry.read(group);
  report.must_be_good();
  made = choice.make();
  return *made;
}

const tokenizers::Tokenizer& DataFolder::tokenizer_named(const std::string& name) const {
  for (const auto& one : json("tokenizers.json"))
    if (one["tokenizer"] == name) return tokenizer(flag_map(one["flags"]));
  throw ConfigError(text((folder_ / "tokenizers.json").string(), ": has no tokenizer ", name));
}

std::string DataFolder::given_path(const std::string& path) const {
  const auto found = given_paths_.find(path);
  return found == given_paths_.end() ? path : found->second;
}

std::map<std::string, std::string> flag_map(const Json& arguments) {
  std::map<std::string, std::string> flags;
  std::string last;
  for (const std::string word : arguments) {
    if (word.substr(0, 2) == "--")
      flags[last = word];
    else
      flags[last] += (flags[last].empty() ? "" : " ") + word;
  }
  return flags;
}

void DataFolder::run(const std::string& name, const std::function<std::string()>& judge) {
  CaseResult result{name, CaseResult::Verdict::failed, ""};
  try {
    result.summary = judge();
    if (result.summary.empty()) result.verdict = CaseResult::Verdict::passed;
  } catch (const NotSupported& missing) {
    result.verdict = CaseResult::Verdict::not_supported;
    result.summary = missing.what;
  } catch (const std::exception& error) {
    result.summary = error.what();
  }
  results.push_back(result);
}

namespace {

std::string judge_classes(const DataFolder& data) {
  const unicode::UnicodeClasses classes;
  std::vector<unicode::UnicodeClass> wanted(0x110000, unicode::UnicodeClass::other);
  for (const auto& row : data.lines("unicode_classes.jsonl")) {
    const auto kind = row[2] == "letter"   ? unicode::UnicodeClass::letter
                      : row[2] == "number" ? unicode::UnicodeClass::number
                                           : unicode::UnicodeClass::space;
    for (auto code = row[0].get<std::size_t>(); code <= row[1].get<std::size_t>(); ++code) wanted[code] = kind;
  }
  for (std::size_t code = 0; code < wanted.size(); ++code)
    if (classes.of(static_cast<char32_t>(code)) != wanted[code])
      return text("code point ", code, " is of another class");
  return "";
}

std::string judge_text(const tokenizers::Tokenizer& tokenizer, tokenizers::Tokenizer::Encoder& encoder,
                       const std::string& words, const Json& row) {
  std::vector<std::int32_t> ids;
  encoder.encode(words, ids);
  const auto expected = row["ids"].get<std::vector<std::int32_t>>();
  for (std::size_t i = 0; i < std::max(ids.size(), expected.size()); ++i) {
    const auto id = [i](const auto& list) { return i < list.size() ? std::to_string(list[i]) : "the end"; };
    if (id(ids) != id(expected)) return text("token ", i, " is ", id(ids), ", recorded is ", id(expected));
  }
  const auto decoded = tokenizer.decode(ids);
  std::string streamed;
  const auto decoder = tokenizer.decoder();
  for (const auto id : ids) {
    const auto part = decoder->push(id);
    if (unicode::first_not_utf8(part) != std::string_view::npos) return "a decoder gives a part of a character";
    streamed += part;
  }
  if (streamed + decoder->finish() != decoded) return "decodes to another text token after token than at once";
  if (tokenizer.identity().class_name == "_GPT2BPETokenizer" && (decoded != words || tokenizer.bytes(ids) != words))
    return "does not decode to its own text";
  if (row.contains("decoded") && decoded != row["decoded"].get<std::string>())
    return text("decodes to '", decoded, "', recorded is '", row["decoded"].get<std::string>(), "'");
  return "";
}

std::string judge_rows(const DataFolder& data, const tokenizers::Tokenizer& tokenizer, const std::string& file,
                       const std::vector<Json>& rows) {
  const auto encoder = tokenizer.encoder();
  const auto texts = data.lines("corpus/" + file + ".jsonl");
  for (const auto& row : rows) {
    const auto& words = texts.at(row["line"].get<std::size_t>())["text"];
    const auto one = words.is_array() ? words.at(row["part"].get<std::size_t>()) : words;
    const auto wrong = judge_text(tokenizer, *encoder, one, row);
    if (!wrong.empty()) return text("line ", row["line"], " part ", row.value("part", Json(0)), ": ", wrong);
  }
  return "";
}

std::string judge_special_id(const std::string& name, const Json& recorded, const std::optional<std::int32_t>& id) {
  const auto said = id ? std::to_string(*id) : "no such property";
  const auto wanted = recorded.is_string() ? "no such property" : recorded.dump();
  return said == wanted ? "" : text(name, " is ", said, ", recorded is ", wanted);
}

std::string judge_tokenizer(const DataFolder& data, const Json& row) {
  const auto& tokenizer = data.tokenizer(flag_map(row["flags"]));
  constexpr std::int64_t multiple = 128;  // Megatron-LM's make_vocab_size_divisible_by
  const auto padded = (tokenizer.vocab_size() + multiple - 1) / multiple * multiple;
  if (tokenizer.vocab_size() != row["vocab_size"] || padded != row["padded_vocab_size"])
    return text("has ", tokenizer.vocab_size(), " tokens, recorded are ", row["vocab_size"].dump());
  if (tokenizer.eod() != row["eod"]) return text("eod is ", tokenizer.eod(), ", recorded is ", row["eod"].dump());
  const auto special = tokenizer.special_ids();
  for (const auto& [name, id] :
       {std::pair("pad", special.pad), std::pair("bos", special.bos), std::pair("eos", special.eos),
        std::pair("cls", special.cls), std::pair("sep", special.sep), std::pair("mask", special.mask)})
    if (const auto wrong = judge_special_id(name, row[name], id); !wrong.empty()) return wrong;
  const auto identity = tokenizer.identity();
  Json paths = Json::array();
  for (const auto& path : identity.paths) paths.push_back(path ? Json(data.given_path(*path)) : Json());
  Json said = {{"class", identity.class_name}, {"tokenizer_path", paths}};
  for (const auto& [name, value] : identity.options) said[name] = value;
  if (said != row["unique_identifiers"])
    return text("identity is ", said.dump(), ", recorded is ", row["unique_identifiers"].dump());
  return "";
}

}  // namespace

void judge_ids(DataFolder& data) {
  if (data.has("unicode_classes.jsonl")) data.run("unicode_classes", [&] { return judge_classes(data); });
  if (data.has("tokenizers.json"))
    for (const auto& row : data.json("tokenizers.json"))
      data.run("tokenizers/" + row["tokenizer"].get<std::string>(), [&] { return judge_tokenizer(data, row); });
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data.path())) {
    const auto name = entry.path().filename().string();
    if (const auto at = name.find("_ids.jsonl"); at != std::string::npos) names.insert(name.substr(0, at));
  }
  for (const auto& name : names) {
    std::map<std::string, std::vector<Json>> files;
    for (auto& row : data.lines(name + "_ids.jsonl")) files[row["file"]].push_back(row);
    for (const auto& [file, rows] : files)
      data.run(name + "_ids/" + file, [&, &corpus = file, &all = rows] {
        return judge_rows(data, name == "gpt2" ? data.gpt2() : data.tokenizer_named(name), corpus, all);
      });
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
