#include "framework/tokenizers/tokenizer.h"

#include <fstream>
#include <random>

#include "framework/tokenizers/bpe.h"
#include "framework/unicode/unicode_classes.h"
#include "framework/unicode/utf8.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::tokenizers {
namespace {

using Ids = std::vector<std::int32_t>;

// A vocabulary of the 256 bytes, the merges of `lines` and the end of a text.
std::unique_ptr<Tokenizer> bpe_of(const std::vector<std::string>& lines) {
  const ByteSpelling spelling;
  std::ofstream vocab("vocab.json"), merges("merges.txt");
  vocab << "{";
  for (int b = 0; b < 256; ++b) {
    const auto spelt = spelling.spell(std::string(1, static_cast<char>(b)));
    vocab << '"' << (spelt == "\"" || spelt == "\\" ? "\\" : "") << spelt << "\": " << b << ", ";
  }
  merges << merges_header << "\n";
  int id = 256;
  for (auto line : lines) {
    merges << line << "\n";
    line.erase(line.find(' '), 1);
    vocab << '"' << line << "\": " << id++ << ", ";
  }
  vocab << "\"<|endoftext|>\": " << id << "}";
  vocab.close();
  merges.close();
  return chosen(tokenizers(),
                {{"tokenizer_type", "GPT2BPETokenizer"}, {"vocab_file", "vocab.json"}, {"merge_file", "merges.txt"}});
}

using Bpe = InOwnFolder;

TEST_F(Bpe, TextOfAnyBytesComesBack) {
  const auto tokenizer = bpe_of({"a b", "ab c", "Ġ a", "e e"});
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text(random() % 200, ' ');
    for (auto& byte : text) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 101));
    EXPECT_EQ(tokenizer->bytes(tokenizer->encode(text)), text);
  }
}

TEST_F(Bpe, AnEncoderThatKnowsTheWordGivesTheSameIds) {
  const auto tokenizer = bpe_of({"a b", "ab c", "Ġ abc"});
  const auto encoder = tokenizer->encoder();
  Ids first, second;
  encoder->encode("abc abcab 'll", first);
  encoder->encode("abc abcab 'll", second);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, (Ids{257, 258, 256, ' ', '\'', 'l', 'l'}));
}

TEST_F(Bpe, TheWeakestRuleWaitsForTheStronger) {
  const auto tokenizer = bpe_of({"b c", "a b", "a bc"});
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{258}));
  EXPECT_EQ(tokenizer->encode("abab"), (Ids{257, 257}));
}

TEST_F(Bpe, AllOccurrencesOfAPairAreMergedBeforeWhatTheyMakePossible) {
  const auto tokenizer = bpe_of({"a b", "ab c", "abcd abc", "abc d"});
  EXPECT_EQ(tokenizer->encode("abcdabcd"), (Ids{259, 259}));
  auto padded = tokenizer->encode("abcdabcd" + std::string(60, 'z'));
  padded.resize(2);
  EXPECT_EQ(padded, (Ids{259, 259}));
}

TEST_F(Bpe, LongPiecesAreMergedAsShortOnes) {
  // Pairs whose halves overlap, and a rule ("aa aaa") that becomes possible only late.
  const auto tokenizer = bpe_of({"a a", "aa aa", "aa a", "b a", "ba b", "aaaa aaaa", "aa aaa"});
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string half;
    for (int i = 0; i < 40; ++i) half += random() % 4 == 0 ? 'b' : 'a';
    // The same letters, once short and once made long by letters that no rule joins.
    const auto alone = tokenizer->encode(half);
    auto padded = tokenizer->encode(half + std::string(60, 'z'));
    padded.resize(padded.size() - 60);
    EXPECT_EQ(alone, padded) << half;
  }
}

// Megatron-LM gives such text the id 0.
TEST_F(Bpe, AMergeWithoutAnEntryInTheVocabularyIsRefused) {
  (void)bpe_of({"a b"});
  std::ofstream("merges.txt") << "#version: 0.2\na b\nx y\n";
  const auto open = [] {
    (void)chosen(tokenizers(),
                 {{"tokenizer_type", "GPT2BPETokenizer"}, {"vocab_file", "vocab.json"}, {"merge_file", "merges.txt"}});
  };
  expect_refused(open, {"merges.txt:3: the merge 'x y' makes 'xy'", "not a token of vocab.json", "of one tokenizer"});
}

TEST_F(Bpe, SpecialTokensInATextAreOrdinaryText) {
  const auto tokenizer = bpe_of({"a b"});
  EXPECT_EQ(tokenizer->eod(), 257);
  EXPECT_EQ(tokenizer->vocab_size(), 258);
  const auto ids = tokenizer->encode("<|endoftext|>");
  EXPECT_EQ(ids.size(), 13U);
  EXPECT_EQ(tokenizer->decode(Ids{257}), "<|endoftext|>");
}

TEST_F(Bpe, AStreamHoldsBackUnfinishedCharacters) {
  const auto tokenizer = bpe_of({"a b"});
  const auto decoder = tokenizer->decoder();
  const std::string smile = "\xF0\x9F\x98\x80";
  std::string shown;
  for (std::size_t i = 0; i < 3; ++i) shown += decoder->push(static_cast<unsigned char>(smile[i]));
  EXPECT_EQ(shown, "");
  EXPECT_EQ(decoder->push(static_cast<unsigned char>(smile[3])), smile);
  EXPECT_EQ(decoder->push(0xF0), "");
  EXPECT_EQ(decoder->push('a'), std::string(unicode::replacement_character) + "a");
  (void)decoder->push(0xE2);
  EXPECT_EQ(decoder->finish(), unicode::replacement_character);
  EXPECT_EQ(decoder->finish(), "");
  EXPECT_EQ(decoder->push(99999), unicode::replacement_character);
}

TEST_F(Bpe, BrokenFilesAreNamed) {
  (void)bpe_of({"a b"});
  const auto open = [](const std::string& vocab, const std::string& merges) {
    return [=] {
      (void)chosen(tokenizers(),
                   {{"tokenizer_type", "GPT2BPETokenizer"}, {"vocab_file", vocab}, {"merge_file", merges}});
    };
  };
  expect_refused(open("absent.json", "merges.txt"), {"absent.json", "vocabulary"});
  expect_refused(open("vocab.json", ""), {"vocab_file and merge_file"});
  expect_refused(open(".", "merges.txt"), {"folder"});
  expect_refused(open("merges.txt", "merges.txt"), {"merges.txt", "not a vocabulary"});
  write("list.json", "[1, 2]");
  expect_refused(open("list.json", "merges.txt"), {"list.json", "is a JSON array"});
  write("words.json", R"({"a": "b"})");
  expect_refused(open("words.json", "merges.txt"), {"words.json", "the id of 'a' is \"b\""});
  write("endless.json", R"({"a": 0, "ab": 1})");
  expect_refused(open("endless.json", "merges.txt"), {"endless.json", "<|endoftext|>"});
  write("three.txt", "#version: 0.2\na b\na b c\n");
  expect_refused(open("vocab.json", "three.txt"), {"three.txt:3", "a b c"});
}

TEST(Null, NumbersAreTokens) {
  const auto tokenizer = chosen(tokenizers(), {{"tokenizer_type", "NullTokenizer"}, {"vocab_size", "997"}});
  EXPECT_EQ(tokenizer->encode("3 0 996"), (Ids{3, 0, 996}));
  EXPECT_EQ(tokenizer->decode(Ids{3, 0, 996}), "3 0 996");
  EXPECT_EQ(tokenizer->vocab_size(), 998);
  EXPECT_EQ(tokenizer->eod(), 997);
  EXPECT_TRUE(tokenizer->encode("").empty());
  for (const auto* text : {"3  4", "a", "998", "-1", "3 "})
    expect_refused([&] { (void)tokenizer->encode(text); }, {"NullTokenizer", "997"});
}

TEST(NoTokenizer, IsNone) { EXPECT_EQ(chosen(tokenizers(), {}), nullptr); }

std::vector<std::string> pieces(const std::string& text) {
  const unicode::UnicodeClasses classes;
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size(); at += all.back().size())
    all.push_back(text.substr(at, unicode::next_piece(classes, text, at)));
  return all;
}

TEST(Pieces, AreCutAsTheExpressionSays) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces("I'll don't 'Tis I'LL"), (Pieces{"I", "'ll", " don", "'t", " '", "Tis", " I", "'", "LL"}));
  EXPECT_EQ(pieces("a1 23 b!?  c"), (Pieces{"a", "1", " 23", " b", "!?", " ", " c"}));
  EXPECT_EQ(pieces("x\n\n  y\n"), (Pieces{"x", "\n\n ", " y", "\n"}));
  EXPECT_EQ(pieces("x\n\ny \n"), (Pieces{"x", "\n", "\n", "y", " \n"}));
  EXPECT_EQ(pieces("   "), (Pieces{"   "}));
  EXPECT_EQ(pieces("'sand 're"), (Pieces{"'s", "and", " '", "re"}));
  EXPECT_EQ(pieces("\xC2\xA0\xC2\xA0g\xC3\xBC\xE2\x85\xA7"),
            (Pieces{"\xC2\xA0", "\xC2\xA0", "g\xC3\xBC", "\xE2\x85\xA7"}));
  EXPECT_EQ(pieces("a\xFF\xFEg"), (Pieces{"a", "\xFF\xFE", "g"}));
}

TEST(Utf8, BrokenPartsBecomeOneSignEachAsInPython) {
  const std::string r(unicode::replacement_character);
  const std::vector<std::pair<std::string, std::string>> cases = {
      // bytes, what Python decodes with errors="replace"
      {"a\x80z", "a" + r + "z"},
      {"\xC3(", r + "("},
      {"\xE2\x82(", r + "("},
      {"\xE2(\xAC", r + "(" + r},
      {"\xF0\x9F\x98(", r + "("},
      {"\xED\xA0\x80", r + r + r},
      {"\xC0\xAF", r + r},
      {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xF0\x80\x80", r + r + r},
      {"\xE2\x82", r},
      {"\xFF", r},
      {"g\xC3\xBC\xF0\x9F\x98\x80", "g\xC3\xBC\xF0\x9F\x98\x80"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(unicode::with_replacements(bytes), text);
  EXPECT_EQ(unicode::first_not_utf8("abc\xC3\xBC"), std::string_view::npos);
  EXPECT_EQ(unicode::first_not_utf8("abc\xC3"), 3U);
}

}  // namespace
}  // namespace tessera::tokenizers
