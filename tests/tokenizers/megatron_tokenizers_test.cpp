// BertWordPiece and TikTokenizer as recorded from Megatron-LM by tests/peers/record_megatron_tokenizers.py.

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "framework/options/choose.h"
#include "framework/tokenizers/continuation.h"
#include "framework/tokenizers/ranked_bytes.h"
#include "framework/tokenizers/tiktoken_words.h"
#include "framework/tokenizers/tokenizer.h"
#include "framework/unicode/utf8.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::tokenizers {
namespace {

using Ids = std::vector<std::int32_t>;
using LibraryJson = nlohmann::ordered_json;

class MegatronTokenizers : public InOwnFolder {
 protected:
  void copy(const std::string& folder) {
    for (const auto& file : std::filesystem::directory_iterator(TESTS_DATA "/" + folder))
      std::filesystem::copy(file.path(), file.path().filename());
  }

  static void expect_properties(const Tokenizer& tokenizer, const LibraryJson& line) {
    EXPECT_EQ(tokenizer.vocab_size(), line.at("vocab_size"));
    EXPECT_EQ(tokenizer.eod(), line.at("eod"));
    const auto ids = tokenizer.special_ids();
    const auto as_json = [](const std::optional<std::int32_t>& id) { return id ? LibraryJson(*id) : LibraryJson(); };
    EXPECT_EQ(as_json(ids.pad), line.at("pad"));
    EXPECT_EQ(as_json(ids.bos), line.at("bos"));
    EXPECT_EQ(as_json(ids.eos), line.at("eos"));
    EXPECT_EQ(as_json(ids.cls), line.at("cls"));
    EXPECT_EQ(as_json(ids.sep), line.at("sep"));
    EXPECT_EQ(as_json(ids.mask), line.at("mask"));
    const auto identity = tokenizer.identity();
    LibraryJson keys = {{"class", identity.class_name}, {"tokenizer_path", LibraryJson::array()}};
    for (const auto& path : identity.paths) keys["tokenizer_path"].push_back(path.value_or("None"));
    for (const auto& option : identity.options) keys[option.first] = option.second;
    EXPECT_EQ(keys.dump(), line.at("identity").dump());
  }

  static std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
    const auto decoder = tokenizer.decoder();
    std::string all;
    for (const auto id : ids) {
      const auto part = decoder->push(id);
      EXPECT_EQ(unicode::first_not_utf8(part), std::string::npos);
      all += part;
    }
    return all + decoder->finish();
  }

  void expect_recorded(const std::string& folder) {
    copy(folder);
    std::unique_ptr<Tokenizer> tokenizer;
    std::unique_ptr<Tokenizer::Encoder> encoder;
    std::ifstream lines("cases.jsonl");
    std::size_t texts = 0;
    for (std::string words; std::getline(lines, words);) {
      const auto line = LibraryJson::parse(words);
      if (line.contains("options")) {
        encoder.reset();
        tokenizer = options::choose(tokenizers(), line.at("options").dump()).make();
        encoder = tokenizer->encoder();
        expect_properties(*tokenizer, line);
      } else if (line.contains("error")) {
        expect_refused([&] { (void)tokenizer->encode(line.at("text").get<std::string>()); }, {"[UNK]"});
      } else if (line.contains("text")) {
        Ids ids;
        encoder->encode(line.at("text").get<std::string>(), ids);
        EXPECT_EQ(ids, line.at("ids").get<Ids>()) << line;
        ++texts;
      } else {
        EXPECT_EQ(streamed(*tokenizer, line.at("ids").get<Ids>()), line.at("decoded").get<std::string>()) << line;
      }
    }
    EXPECT_GE(texts, 300U);
  }
};

TEST_F(MegatronTokenizers, BertWordPieceAsRecorded) { expect_recorded("bert"); }

// BERT's decoder holds the last word back, which a "##" token could continue.
TEST_F(MegatronTokenizers, TheContinuationOfAPromptHasNoTextOfThePrompt) {
  write("words.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n##s\nlord\n");
  const auto bert = chosen(tokenizers(), {{"tokenizer_type", "BertWordPieceLowerCase"}, {"vocab_file", "words.txt"}});
  const auto prompt = bert->encode("hello world");
  ASSERT_EQ(prompt, (Ids{5, 6}));
  const auto said = [&](const Ids& ids) {
    Continuation answer(*bert, prompt);
    std::string all;
    for (const auto id : ids) all += answer.push(id);
    return all + answer.finish();
  };
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({8}), " lord");
  EXPECT_EQ(said({7, 8}), "s lord");
  EXPECT_EQ(said({6}), " world") << "the model may repeat the word";
}

TEST_F(MegatronTokenizers, TikTokenizerAsRecorded) { expect_recorded("tiktoken"); }

TEST_F(MegatronTokenizers, BertRefusesWhatItCannotUse) {
  copy("bert");
  const auto open = [](const std::string& file) {
    return [file] { (void)chosen(tokenizers(), {{"tokenizer_type", "BertWordPieceCase"}, {"vocab_file", file}}); };
  };
  expect_refused(open(""), {"BertWordPieceCase needs vocab_file"});
  expect_refused(open("absent.txt"), {"absent.txt", "vocabulary"});
  write("empty.txt", "");
  expect_refused(open("empty.txt"), {"empty.txt", "empty"});
  write("bytes.txt", "[PAD]\n\xFF\n");
  expect_refused(open("bytes.txt"), {"bytes.txt:2", "byte 6"});
  write("words.txt", "a\nb\n[CLS]\n");
  expect_refused(open("words.txt"), {"words.txt", "[SEP]"});
}

TEST_F(MegatronTokenizers, TikTokenizerRefusesWhatItCannotUse) {
  copy("tiktoken");
  const auto open = [](std::map<std::string, std::string> more) {
    more.emplace("tokenizer_type", "TikTokenizer");
    more.emplace("tokenizer_model", "vocab.json");
    if (!more.emplace("tiktoken_pattern", "v1").second && more.at("tiktoken_pattern").empty())
      more.erase("tiktoken_pattern");
    more.emplace("vocab_size", "300");
    more.emplace("tiktoken_num_special_tokens", "7");
    return [more] { (void)chosen(tokenizers(), more); };
  };
  open({})();
  expect_refused(open({{"tokenizer_model", "vocab.model"}}), {"vocab.model", ".json"});
  expect_refused(open({{"tokenizer_model", "absent.json"}}), {"absent.json", "vocabulary"});
  expect_refused(open({{"tiktoken_pattern", ""}}), {"tiktoken_pattern", "v1 or v2"});
  expect_refused(open({{"tiktoken_pattern", "v3"}}), {"v3"});
  expect_refused(open({{"tiktoken_num_special_tokens", "2"}}), {"tiktoken_num_special_tokens is 2", "3 tokens"});
  expect_refused(open({{"tiktoken_num_special_tokens", "300"}}), {"tiktoken_num_special_tokens is 300"});
  expect_refused(open({{"vocab_size", "5000"}}), {"vocab.json", "756 tokens", "set vocab_size to 763"});
  const auto vocabulary = [&](const std::string& content, const std::vector<std::string>& parts) {
    write("own.json", content);
    expect_refused(open({{"tokenizer_model", "own.json"}}), parts);
  };
  vocabulary("{}", {"own.json", "JSON list"});
  vocabulary("[1]", {"own.json: entry 0", "is 1"});
  vocabulary(R"([{"rank": 1, "token_bytes": "AA==", "token_str": ""}])", {"own.json: entry 0", "rank 1", "expected 0"});
  vocabulary(R"([{"rank": 0, "token_bytes": "A", "token_str": ""}])",
             {"own.json: entry 0", "is not valid base64", "length 1"});
  vocabulary(R"([{"rank": 0, "token_bytes": "AQ==", "token_str": ""}])", {"own.json: entry 0", "not the byte 0"});
  vocabulary(R"([{"rank": 0, "token_bytes": "AA=="}])", {"own.json: entry 0", "token_str"});
}

TEST_F(MegatronTokenizers, TikTokenizerFindsSpecialTokensInRenderedTextsOnly) {
  copy("tiktoken");
  const auto open = [](const LibraryJson& more) {
    LibraryJson all = {{"tokenizer_type", "TikTokenizer"},
                       {"tokenizer_model", "vocab.json"},
                       {"tiktoken_pattern", "v2"},
                       {"vocab_size", 766},
                       {"tiktoken_num_special_tokens", 12}};
    all.update(more);
    return options::choose(tokenizers(), all.dump()).make();
  };
  const auto rendered = [](const Tokenizer& tokenizer, const std::string& words) {
    Ids ids;
    tokenizer.encoder()->encode_rendered(words, ids);
    return ids;
  };
  const auto tokenizer = open(LibraryJson::object());
  auto expected = tokenizer->encode("of");
  expected.insert(expected.begin(), 1);
  expected.insert(expected.end(), {10, 2});
  EXPECT_EQ(rendered(*tokenizer, "<s>of<SPECIAL_10></s>"), expected);
  EXPECT_EQ(rendered(*tokenizer, "a <b> <SPECIAL_12"), tokenizer->encode("a <b> <SPECIAL_12"));
  const auto ordinary = tokenizer->encode("of</s>");
  EXPECT_EQ(std::count(ordinary.begin(), ordinary.end(), 2), 0);
  EXPECT_EQ(tokenizer->token_id("<SPECIAL_11>"), 11);
  EXPECT_EQ(tokenizer->token_id("<SPECIAL_12>"), std::nullopt);
  std::string names;
  for (const auto& one : tokenizer->named_tokens()) names += text(one.name, " ", one.text, " ", one.id, "\n");
  EXPECT_EQ(names, "bos_token <s> 1\neos_token </s> 2\nunk_token <unk> 0\n");
  const auto longest = open({{"tiktoken_special_tokens", {"<unk>", "<s>", "</s>", "<s>x"}}});
  EXPECT_EQ(rendered(*longest, "<s>x<s>"), (Ids{3, 1}));
}

TEST_F(MegatronTokenizers, EveryWordOfTiktokenIsSomeText) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const auto length = random() % 60;
    for (unsigned i = 0; i < length; ++i)
      text +=
          random() % 4 == 0 ? std::string(1, static_cast<char>(random() % 256)) : unicode::to_utf8(random() % 0xD800);
    for (const auto pattern : {TiktokenPattern::v1, TiktokenPattern::v2})
      for (std::size_t at = 0; at < text.size();) {
        const auto size = next_tiktoken_word(pattern, text, at);
        ASSERT_GT(size, 0U);
        ASSERT_LE(at + size, text.size());
        at += size;
      }
  }
}

// Words of more than a hundred bytes are joined with a heap: against the definition, looked up again for every join.
TEST_F(MegatronTokenizers, LongWordsAreJoinedByTheDefinition) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 30; ++round) {
    RankedBytes ranks;
    std::map<std::string, std::int32_t> known;
    const auto add = [&](const std::string& token) {
      if (ranks.add(token)) known.emplace(token, static_cast<std::int32_t>(known.size()));
    };
    for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
    for (int i = 0; i < 40; ++i) {
      std::string token;
      for (unsigned n = 2 + random() % 4; n > 0; --n) token += static_cast<char>('a' + random() % 3);
      add(token);
    }
    std::string word;
    for (unsigned n = random() % 300; n > 0; --n) word += static_cast<char>('a' + random() % 3);
    std::vector<std::string> parts;
    for (const auto c : word) parts.emplace_back(1, c);
    while (known.count(word) == 0) {
      std::int32_t best = 0x7FFFFFFF;
      std::size_t where = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i)
        if (const auto found = known.find(parts[i] + parts[i + 1]); found != known.end() && found->second < best) {
          best = found->second;
          where = i;
        }
      if (best == 0x7FFFFFFF) break;
      parts[where] += parts[where + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
    if (known.count(word) != 0) parts = {word};
    Ids expected, ids;
    for (const auto& part : parts) expected.push_back(known.at(part) + 5);
    ranks.encode(word, 5, "x", ids);
    EXPECT_EQ(ids, expected) << word;
  }
}

}  // namespace
}  // namespace tessera::tokenizers
