#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/instructions/sft_dataset.h"
#include "framework/jinja/chat_template.h"
#include "framework/tokenizers/tokenizer.h"
#include "framework/unicode/regex.h"
#include "framework/unicode/utf8.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::tokenizers {
namespace {

using Ids = std::vector<std::int32_t>;
using LibraryJson = nlohmann::ordered_json;

std::unique_ptr<Tokenizer> chosen_folder() {
  return chosen(tokenizers(), {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "folder"}});
}

std::unique_ptr<Tokenizer> tokenizer_of(const LibraryJson& content, const LibraryJson& config = nullptr) {
  std::filesystem::create_directories("folder");
  std::filesystem::remove("folder/tokenizer_config.json");
  std::ofstream("folder/tokenizer.json") << content;
  if (config.is_null()) return chosen_folder();
  auto words = config.dump();  // as transformers writes it: a whole number beyond 64 bits
  if (const auto at = words.find("1e+30"); at != std::string::npos)
    words.replace(at, 5, "1000000000000000019884624838656");
  std::ofstream("folder/tokenizer_config.json") << words;
  return chosen_folder();
}

LibraryJson recorded_tokenizer(const std::string& shape) {
  return LibraryJson::parse(read_file(std::filesystem::path(TESTS_DATA) / "tokenizers" / (shape + ".json")));
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  const auto decoder = tokenizer.decoder();
  std::string all;
  for (const auto id : ids) {
    const auto part = decoder->push(id);
    EXPECT_EQ(unicode::first_not_utf8(part), std::string_view::npos);
    all += part;
  }
  return all + decoder->finish();
}

using HuggingFace = InOwnFolder;

// Recorded with the real library by tests/peers/record_tokenizers.py.
TEST_F(HuggingFace, EveryShapeGivesTheIdsAndTextsOfTheOriginal) {
  std::size_t shapes = 0, cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TESTS_DATA) / "tokenizers")) {
    const auto content = recorded_tokenizer(entry.path().stem().string());
    if (!content.contains("cases")) continue;
    SCOPED_TRACE(entry.path().stem().string());
    const auto tokenizer = tokenizer_of(content["tokenizer"]);
    EXPECT_EQ(tokenizer->vocab_size(), content["vocab_size"].get<std::int64_t>());
    const auto encoder = tokenizer->encoder();
    for (const auto& one : content["cases"]) {
      const auto wanted = one["ids"].get<Ids>();
      if (one.contains("text")) {
        Ids ids;
        encoder->encode(one["text"].get<std::string>(), ids);
        EXPECT_EQ(ids, wanted) << one["text"];
      }
      EXPECT_EQ(streamed(*tokenizer, wanted), one["decoded"].get<std::string>()) << LibraryJson(wanted);
      ++cases;
    }
    ++shapes;
  }
  EXPECT_GE(shapes, 20U);
  EXPECT_GE(cases, 1000U);
}

TEST_F(HuggingFace, AnUnknownPartIsRefusedByName) {
  const auto refused = [](const char* part, const LibraryJson& value) {
    auto content = recorded_tokenizer("gpt2")["tokenizer"];
    content[part] = value;
    try {
      tokenizer_of(content);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("was taken");
  };
  for (const auto* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    const auto message = refused(part, {{"type", "Fancy"}});
    EXPECT_NE(message.find(std::string(part) + " 'Fancy' is not supported; supported are "), std::string::npos)
        << message;
  }
  EXPECT_NE(
      refused("model", {{"type", "Fancy"}, {"vocab", LibraryJson::object()}}).find("model 'Fancy' is not supported"),
      std::string::npos);
  const auto split = [](const std::string& pattern) {
    return LibraryJson{
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  EXPECT_NE(refused("pre_tokenizer", split(R"((a)\1)")).find(R"('(a)\1': at byte 5: '\1' is not supported)"),
            std::string::npos)
      << refused("pre_tokenizer", split(R"((a)\1)"));
  EXPECT_NE(refused("pre_tokenizer", split(R"(\p{Greek})")).find("the property 'Greek' is not supported"),
            std::string::npos);
}

// files::cut_long_text() cuts between such characters, except before '/'.
TEST_F(HuggingFace, ATextMayBeCutAtLinesOnlyWhereItsIdsStayTheSame) {
  std::string cut;
  for (const auto& entry : list_folder(std::filesystem::path(TESTS_DATA) / "tokenizers")) {
    const auto content = recorded_tokenizer(entry.stem().string());
    if (!content.contains("cases")) continue;
    const auto tokenizer = tokenizer_of(content["tokenizer"]);
    if (!tokenizer->may_be_cut_at_lines()) continue;
    cut += entry.stem().string() + " ";
    const auto encoder = tokenizer->encoder();
    int differ = 0;
    for (char before = '!'; before <= '~'; ++before)
      for (char after = '!'; after <= '~'; ++after) {
        if (after == '/') continue;
        Ids whole, parts;
        const auto first = text("a, ", before, "\n"), second = text(after, "b");
        encoder->encode(first + second, whole);
        encoder->encode(first, parts);
        encoder->encode(second, parts);
        differ += whole == parts ? 0 : 1;
      }
    EXPECT_EQ(differ, 0) << entry;
  }
  // Not gpt2, which has a token with lstrip, nor llama3 with its template.
  EXPECT_EQ(cut, "cl100k deepseek o200k qwen2 ");
}

LibraryJson small_tokenizer(const char* part, const char* list, const std::vector<LibraryJson>& steps) {
  return {{"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}, {"b", 1}, {"[UNK]", 2}}}, {"unk_token", "[UNK]"}}},
          {part, {{"type", "Sequence"}, {list, steps}}}};
}

// A few steps that each double a text would need more memory than any machine has.
TEST_F(HuggingFace, NoStepsMakeATextLongerThanTheLimit) {
  const LibraryJson twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const LibraryJson regex = {{"type", "Replace"}, {"pattern", {{"Regex", "[ab]"}}}, {"content", "ab"}};
  const LibraryJson bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const LibraryJson prefixed = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
  const LibraryJson characters = {{"type", "Split"}, {"pattern", {{"Regex", "."}}}, {"behavior", "Isolated"}};
  const LibraryJson text_twice = {{"type", "TemplateProcessing"},
                                  {"single", {{{"Sequence", {{"id", "A"}}}}, {{"Sequence", {{"id", "A"}}}}}}};
  const LibraryJson long_prefix = {{"type", "Prepend"}, {"prepend", std::string(3 << 20, 'x')}};
  const auto repeated = [](const std::vector<LibraryJson>& steps, int times) {
    std::vector<LibraryJson> all;
    for (int i = 0; i < times; ++i) all.insert(all.end(), steps.begin(), steps.end());
    return all;
  };
  const auto expect_limit = [](const LibraryJson& content) {
    try {
      const auto tokenizer = tokenizer_of(content);
      const auto ids = tokenizer->encode("aé");
      (void)tokenizer->decode(Ids{0, 1});
      ADD_FAILURE() << "made " << ids.size() << " ids";
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.rfind("folder/tokenizer.json: ", 0), 0U) << what;
      EXPECT_NE(what.find("limit"), std::string::npos) << what;
    }
  };
  for (const auto& steps : {repeated({twice}, 40), repeated({regex}, 40), repeated({bytes}, 40), {long_prefix}})
    expect_limit(small_tokenizer("normalizer", "normalizers", steps));
  for (const auto& steps : {repeated({bytes}, 40), repeated({characters, prefixed}, 40)})
    expect_limit(small_tokenizer("pre_tokenizer", "pretokenizers", steps));
  expect_limit(small_tokenizer("post_processor", "processors", repeated({text_twice}, 60)));
  for (const auto& steps : {repeated({twice}, 60), repeated({regex}, 60)})
    expect_limit(small_tokenizer("decoder", "decoders", steps));
  auto added = small_tokenizer("normalizer", "normalizers", repeated({twice}, 40));
  added["added_tokens"] = {{{"content", "a token"}, {"normalized", true}}};
  expect_limit(added);
}

TEST_F(HuggingFace, TheNumberOfStepsIsLimited) {
  const auto refused = [](const char* part, const char* list, const LibraryJson& step) {
    EXPECT_NO_THROW(tokenizer_of(small_tokenizer(part, list, std::vector<LibraryJson>(200, step)))->encode("ab a"));
    expect_refused([&] { tokenizer_of(small_tokenizer(part, list, std::vector<LibraryJson>(100000, step))); },
                   {"folder/tokenizer.json: ", part, "more than 256 steps"});
  };
  refused("normalizer", "normalizers", {{"type", "NFC"}});
  refused("pre_tokenizer", "pretokenizers", {{"type", "WhitespaceSplit"}});
  refused("post_processor", "processors", {{"type", "BertProcessing"}, {"cls", {"a", 0}}, {"sep", {"b", 1}}});
  refused("decoder", "decoders", {{"type", "Fuse"}});
}

TEST_F(HuggingFace, WordPieceTakesWordsOfAnyLengthThatTheFileAllows) {
  const auto tokenizer = tokenizer_of({{"model",
                                        {{"type", "WordPiece"},
                                         {"vocab", {{"a", 0}, {"##a", 1}, {"##ää", 2}, {"[UNK]", 3}}},
                                         {"unk_token", "[UNK]"},
                                         {"continuing_subword_prefix", "##"},
                                         {"max_input_chars_per_word", 1000000000}}}});
  EXPECT_EQ(tokenizer->encode(std::string(300000, 'a')).size(), 300000U);
  EXPECT_EQ(tokenizer->encode("aääa"), (Ids{0, 2, 1}));
}

TEST_F(HuggingFace, TheConfigurationNamesSpecialTokensAndAddsThem) {
  const auto content = recorded_tokenizer("gpt2")["tokenizer"];
  const auto plain = tokenizer_of(content);
  const auto size = static_cast<std::int32_t>(plain->vocab_size());
  EXPECT_THROW(plain->eod(), ConfigError);
  const auto tokenizer = tokenizer_of(content, {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                {"model_max_length", 1e30},
                                                {"bos_token", "<|endoftext|>"},
                                                {"eos_token", {{"content", "</new>"}, {"normalized", true}}},
                                                {"add_bos_token", true},
                                                {"add_eos_token", true},
                                                {"extra_special_tokens", {"<more>"}}});
  const auto bos = plain->encode("<|endoftext|>").at(0);
  EXPECT_EQ(tokenizer->vocab_size(), size + 2);
  EXPECT_EQ(tokenizer->eod(), size);
  EXPECT_EQ(tokenizer->encode("</new><more><|endoftext|>"), (Ids{size, size + 1, bos}));
  EXPECT_EQ(tokenizer->identity().class_name, "_HuggingFaceTokenizer");
  EXPECT_EQ(tokenizer->identity().paths.at(0), "folder");
  EXPECT_FALSE(tokenizer->special_ids().pad);
  EXPECT_EQ(tokenizer->files().size(), 2U);
}

TEST_F(HuggingFace, AnAddedTokenThatStandsTwiceHasOneId) {
  auto content = recorded_tokenizer("gpt2")["tokenizer"];
  const auto size = static_cast<std::int32_t>(tokenizer_of(content)->vocab_size());
  auto& added = content["added_tokens"];
  for (const auto* words : {"<u>", "<u>", "<v>"}) {
    const bool again = words == std::string("<u>") && added.back()["content"] == "<u>";
    added.push_back({{"id", size},
                     {"content", words},
                     {"single_word", false},
                     {"lstrip", again},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const auto tokenizer = tokenizer_of(content);
  EXPECT_EQ(tokenizer->vocab_size(), size + 2);
  EXPECT_EQ(tokenizer->encode("<u><v>"), (Ids{size, size + 1}));
  EXPECT_EQ(tokenizer->encode(" <u>"), (Ids{size})) << "the later entry counts";
}

TEST_F(HuggingFace, SpecialTokensAreOrdinaryTextWhereTheyAreToBeSplit) {
  const auto content = recorded_tokenizer("gpt2")["tokenizer"];
  const std::string words = "a<|endoftext|>b";
  const auto whole = tokenizer_of(content);
  const auto end = *whole->token_id("<|endoftext|>");
  const LibraryJson config = {{"split_special_tokens", true}, {"eos_token", "<|endoftext|>"}};
  const auto split = tokenizer_of(content, config);
  EXPECT_EQ(std::ranges::count(whole->encode(words), end), 1);
  EXPECT_EQ(std::ranges::count(split->encode(words), end), 0);
  EXPECT_EQ(split->decode(split->encode(words)), words);
  EXPECT_EQ(split->eod(), end) << "the token itself is still there";
  EXPECT_TRUE(split->splits_special_tokens());
  EXPECT_NE(split->identity().options, whole->identity().options) << "else a cache of the other's tokens would be read";
  const auto with_option = [](const std::string& value) {
    return chosen(
        tokenizers(),
        {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "folder"}, {"split_special_tokens", value}});
  };
  EXPECT_EQ(with_option("false")->encode(words), whole->encode(words)) << "the option counts before the file";
  tokenizer_of(content);
  EXPECT_EQ(with_option("true")->encode(words), split->encode(words));
}

/// A folder of tests/data/hf_folders.json, without what an earlier one left there.
std::unique_ptr<Tokenizer> folder_of(const LibraryJson& one) {
  const std::filesystem::path folder("folder");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "additional_chat_templates");
  for (const auto& [name, content] : one["files"].items())
    std::ofstream(folder / name, std::ios::binary)
        << (content.is_string() ? content.get<std::string>() : content.dump());
  std::ofstream(folder / "tokenizer.json") << recorded_tokenizer(one["shape"])["tokenizer"];
  return chosen_folder();
}

LibraryJson folders() { return LibraryJson::parse(read_file(std::filesystem::path(TESTS_DATA) / "hf_folders.json")); }

// Recorded with Transformers by tests/peers/record_hf_folders.py.
TEST_F(HuggingFace, FoldersHaveTheSpecialTokensAndTheChatTemplateOfTheOriginal) {
  std::size_t mistakes = 0, conversations = 0;
  for (const auto& one : folders()) {
    SCOPED_TRACE(one["shape"].get<std::string>() + " " + one["files"].dump());
    const auto tokenizer = folder_of(one);
    if (one.contains("special_tokens")) {
      auto named = LibraryJson::array();
      for (const auto& token : tokenizer->named_tokens()) named.push_back({token.name, token.text, token.id});
      EXPECT_EQ(named, one["special_tokens"]);
      EXPECT_EQ(tokenizer->vocab_size(), one["size"].get<std::int64_t>());
    }
    const auto encoder = tokenizer->encoder();
    for (const auto& text : one.value("texts", LibraryJson::array())) {
      Ids ids;
      encoder->encode_rendered(text["text"].get<std::string>(), ids);
      EXPECT_EQ(ids, text["ids"].get<Ids>()) << text["text"];
    }
    if (one.value("mistake", false)) {
      expect_refused([&] { (void)tokenizer->chat_template(); }, {"folder", "give the option chat_template"});
      ++mistakes;
      continue;
    }
    const auto words = tokenizer->chat_template();
    ASSERT_EQ(words.has_value(), one.contains("chat_template"));
    if (!words) continue;
    EXPECT_EQ(*words, one["chat_template"].get<std::string>());
    const jinja::ChatTemplate chat_template(*words, "recorded");
    for (const auto& conversation : one["conversations"]) {
      jinja::ChatTemplateInput input;
      input.add_generation_prompt = conversation["add_generation_prompt"];
      for (const auto& token : tokenizer->named_tokens()) input.special_tokens.emplace_back(token.name, token.text);
      Ids ids;
      encoder->encode_rendered(chat_template.render(read_json(conversation["messages"].dump()), input), ids);
      EXPECT_EQ(ids, conversation["ids"].get<Ids>()) << conversation["messages"];
      ++conversations;
    }
  }
  EXPECT_GE(mistakes, 10U);
  EXPECT_GE(conversations, 60U);
}

TEST_F(HuggingFace, ADamagedChatTemplateIsOneErrorAndOnlyWhereItIsUsed) {
  const auto content = recorded_tokenizer("gpt2")["tokenizer"];
  const auto refused = [&](const LibraryJson& field, const std::string& message) {
    const auto tokenizer = tokenizer_of(content, {{"chat_template", field}, {"eos_token", "A"}});
    EXPECT_EQ(tokenizer->encode("A"), Ids{32});
    const auto path = "folder/tokenizer_config.json: ";
    SftFormat format;
    format.prompt_format = "default";
    try {
      const SftTokenizer conversations(tokenizer.get(), format);
      ADD_FAILURE() << field << " was taken";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(), path + message + "; repair it, or give the option chat_template");
    }
    format.chat_template = "{{ messages }}";
    EXPECT_NO_THROW(SftTokenizer(tokenizer.get(), format));
  };
  refused(
      5, "chat_template: expected the text of a template, or a list of {\"name\": \"default\", \"template\": \"...\"}");
  refused({{{"name", "default"}}}, "chat_template[0]: the field 'template' is missing");
  refused({{{"name", "default"}, {"template", 3}}}, "chat_template[0].template: expected a text");
  refused({{"rag", "x"}, {"tool_use", "y"}}, "no chat template is named default; there are 'rag', 'tool_use'");
}

// A `sft` dataset over a folder, without any option of the template: every token is the one that Transformers gives.
TEST_F(HuggingFace, ConversationsBecomeSamplesWithTheTemplateOfTheFolder) {
  const auto all = folders();
  const auto one = std::find_if(all.begin(), all.end(), [](const LibraryJson& folder) {
    return folder["shape"] == "llama3" && folder["files"]["tokenizer_config.json"]["chat_template"].is_array();
  });
  ASSERT_NE(one, all.end());
  const auto tokenizer = folder_of(*one);
  std::ofstream lines("talks.jsonl");
  std::vector<Ids> wanted;
  for (const auto& conversation : (*one)["conversations"])
    if (!conversation["add_generation_prompt"].get<bool>()) {
      lines << LibraryJson{{"messages", conversation["messages"]}} << "\n";
      wanted.push_back(conversation["ids"].get<Ids>());
    }
  lines.close();
  SftFormat format;
  format.prompt_format = "default";
  instructions::SftDataset::Request request;
  request.samples = static_cast<std::int64_t>(wanted.size());
  request.lines = {0, request.samples};
  request.seq_length = 200;
  const instructions::SftDataset data(std::make_shared<instructions::ConversationFile>("talks.jsonl"),
                                      std::make_shared<SftTokenizer>(tokenizer.get(), format), request);
  ASSERT_EQ(wanted.size(), 2U);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Ids tokens(200), labels(200), positions(200), starts(200);
    std::vector<float> mask(200);
    data.read(static_cast<std::int64_t>(i), {.samples = 1,
                                             .seq_length = 200,
                                             .tokens = tokens,
                                             .labels = labels,
                                             .loss_mask = mask,
                                             .positions = positions,
                                             .document_start = starts});
    ASSERT_LT(wanted[i].size(), 200U);
    wanted[i].resize(200, tokenizer->eod());
    EXPECT_EQ(tokens, wanted[i]);
    EXPECT_EQ(tokens[0], *tokenizer->token_id("<s>"));
  }
}

TEST_F(HuggingFace, AFolderWithoutTokenizerJsonSaysWhatIsThere) {
  std::filesystem::create_directories("folder");
  std::ofstream("folder/tokenizer.model") << "x";
  try {
    chosen(tokenizers(), {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "folder"}});
    FAIL() << "was taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("has no tokenizer.json, only tokenizer.model"), std::string::npos)
        << error.what();
  }
}

std::string matches(const std::string& pattern, const std::string& text) {
  const unicode::Regex regex(pattern);
  unicode::Regex::Finder finder(regex, text);
  std::string all;
  while (const auto match = finder.next()) all += "[" + text.substr(match->begin, match->end - match->begin) + "]";
  return all;
}

// Each answer was checked against the original (Oniguruma, by a pre-tokenizer Split).
TEST(HuggingFaceRegex, MatchesAsOniguruma) {
  EXPECT_EQ(matches("ab|a|b", "abba"), "[ab][b][a]");
  EXPECT_EQ(matches("a+?b", "aaab ab"), "[aaab][ab]");
  EXPECT_EQ(matches("a++a|b", "aaab"), "[b]");
  EXPECT_EQ(matches("(?>a+)a|b", "aaab"), "[b]");
  EXPECT_EQ(matches("(?:ab){2}", "ababab"), "[abab]");
  EXPECT_EQ(matches("a{,2}b", "aaab"), "[aab]");
  EXPECT_EQ(matches("x*", "xxy"), "[xx][]");
  EXPECT_EQ(matches("(?:a*)*b", "aab"), "[aab]");
  EXPECT_EQ(matches("(?i:k|s)", "K k \xE2\x84\xAA \xC5\xBF"), "[K][k][\xE2\x84\xAA][\xC5\xBF]");
  EXPECT_EQ(matches("[^a-c&&[^x]]", "abcxyz"), "[x][y][z]");
  EXPECT_EQ(matches("[a-f&&[^b-d]]", "abcdefg"), "[a][e][f]");
  EXPECT_EQ(matches("(?<=a)b|(?<!a)c", "ab bc ac"), "[b][c]");
  EXPECT_EQ(matches(R"(\p{N}{1,3}+)", "1234567"), "[1234567]");
  EXPECT_EQ(matches("a{2}?b", "aab b ab"), "[aab][b][b]");
  EXPECT_EQ(matches("a{1,2}?", "aa"), "[a][a]");
  EXPECT_EQ(matches("(?i:[sdmt]|ll)", "S LL lL"), "[S][LL][lL]");
  EXPECT_EQ(matches("(?i)a|b", "AB"), "[A][B]");
  EXPECT_EQ(matches("[]a]|[x-]", "]a[x-"), "[]][a][x][-]");
  EXPECT_EQ(matches("^a|b$", "a\na b\nb"), "[a][a][b][b]");
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s)", "a   b "), "[  ][ ][ ]");
}

TEST(HuggingFaceRegex, EndlessBacktrackingIsRefused) {
  EXPECT_THROW(matches("(?:a|a)*c", std::string(64, 'a')), ConfigError);
}

}  // namespace
}  // namespace tessera::tokenizers
