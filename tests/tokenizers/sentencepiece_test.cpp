// The SentencePiece tokenizers against what Megatron-LM's own classes gave (tests/peers/record_sentencepiece.py).

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "framework/tokenizers/sentencepiece_model.h"
#include "framework/unicode/utf8.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::tokenizers {
namespace {

using Ids = std::vector<std::int32_t>;
using LibraryJson = nlohmann::ordered_json;

const std::filesystem::path recorded_models = std::filesystem::path(TESTS_DATA) / "sentencepiece";

std::string model_file(const std::string& name) { return (recorded_models / "models" / (name + ".model")).string(); }

std::unique_ptr<Tokenizer> tokenizer_of_type(const std::string& type, const std::string& file,
                                             const std::string& extra_ids = "0") {
  return chosen(tokenizers(), {{"tokenizer_type", type}, {"tokenizer_model", file}, {"vocab_extra_ids", extra_ids}});
}

std::string decoded_one_by_one(const Tokenizer& tokenizer, const Ids& ids) {
  std::string all;
  const auto decoder = tokenizer.decoder();
  for (const auto id : ids) {
    const auto part = decoder->push(id);
    EXPECT_EQ(unicode::first_not_utf8(part), std::string_view::npos) << "a part of a character";
    all += part;
  }
  return all + decoder->finish();
}

TEST(SentencePiece, AnyIdsDecodeToTheTextOfMegatron) {
  int rows = 0;
  std::ifstream file(recorded_models / "tokenizers.json");
  for (const auto& one : LibraryJson::parse(file)) {
    const auto& flags = one["flags"];
    const auto tokenizer = tokenizer_of_type(flags[1], (recorded_models / flags[3]).string(),
                                             flags.size() > 5 ? flags[5].get<std::string>() : "0");
    const auto name = one["tokenizer"].get<std::string>();
    std::ifstream lines(recorded_models / (name + "_decoded.jsonl"));
    for (std::string line; std::getline(lines, line); ++rows) {
      const auto row = LibraryJson::parse(line);
      EXPECT_EQ(decoded_one_by_one(*tokenizer, row["ids"]), row["decoded"].get<std::string>())
          << name << " " << row["ids"];
    }
  }
  EXPECT_EQ(rows, 12 * 40);
}

TEST(SentencePiece, IdsOneByOneGiveTheTextOfAllAtOnce) {
  const auto seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  for (const auto* name : {"bpe", "unigram", "char", "word", "plain"}) {
    const SentencePieceModel model(model_file(name));
    for (int round = 0; round < 200; ++round) {
      Ids ids(random() % 30);
      const auto most = static_cast<std::uint32_t>(random() % 2 == 0 ? 20 : model.pieces());  // first: special, bytes
      for (auto& id : ids) id = static_cast<std::int32_t>(random() % most);
      const auto decoder = model.decoder();
      std::string all;
      for (const auto id : ids) all += decoder->push(id);
      EXPECT_EQ(all + decoder->finish(), model.decode(ids)) << name << ", seed " << seed << " " << LibraryJson(ids);
    }
  }
}

TEST(SentencePiece, AnIdBehindTheLastTokenIsAReplacementCharacter) {
  const auto tokenizer = tokenizer_of_type("GPTSentencePieceTokenizer", model_file("bpe"));
  auto ids = tokenizer->encode("Lord God");
  ids.insert(ids.end(), {-1, static_cast<std::int32_t>(tokenizer->vocab_size())});
  EXPECT_EQ(tokenizer->decode(ids), "Lord God\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->piece(-1), unicode::replacement_character);
}

TEST(SentencePiece, BytesWaitForTheRestOfTheirCharacter) {
  const auto tokenizer = tokenizer_of_type("GPTSentencePieceTokenizer", model_file("bpe"));
  const std::string smile = "\xF0\x9F\x98\x80";
  const auto ids = tokenizer->encode(smile);
  ASSERT_EQ(ids.size(), 5U) << "a space and four bytes";
  const auto decoder = tokenizer->decoder();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(decoder->push(ids[i]), "");
  EXPECT_EQ(decoder->push(ids[4]), smile);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(decoder->push(ids[i]), "");
  EXPECT_EQ(decoder->finish(), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "one for each byte, as the library";
}

Ids rendered(const Tokenizer& tokenizer, const std::string& words) {
  Ids ids;
  tokenizer.encoder()->encode_rendered(words, ids);
  return ids;
}

Ids joined(const std::vector<Ids>& parts) {
  Ids all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(SentencePiece, ARenderedTextHasTheSpecialTokensThatTheTemplateWroteAndNoOthers) {
  const auto plain = tokenizer_of_type("GPTSentencePieceTokenizer", model_file("bpe"));
  const auto lord = plain->encode("Lord"), god = plain->encode("God");
  const std::string words = "<s>Lord</s>God<unk>";
  const auto expected = joined({{1}, lord, {2}, god, {0}});
  for (const auto* type : {"GPTSentencePieceTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer"}) {
    const auto tokenizer = tokenizer_of_type(type, model_file("bpe"));
    EXPECT_EQ(rendered(*tokenizer, words), expected) << type;
    EXPECT_EQ(rendered(*tokenizer, "Lord"), lord) << type;
    EXPECT_EQ(rendered(*tokenizer, ""), Ids()) << type;
  }
  EXPECT_EQ(tokenizer_of_type("Llama2Tokenizer", model_file("bpe"))->encode("Lord"), joined({{1}, lord}))
      << "as Megatron-LM, which does not render";
  const auto pieces = plain->encode("</s>");
  EXPECT_EQ(std::count(pieces.begin(), pieces.end(), 2), 0) << "an ordinary text has none";
  const auto added = tokenizer_of_type("SentencePieceTokenizer", model_file("bpe"), "2");
  EXPECT_EQ(rendered(*added, "<EOD><extra_id_1></s>"), (Ids{added->eod(), *added->token_id("<extra_id_1>"), 2}));
  const auto control = tokenizer_of_type("Llama2Tokenizer", model_file("char"));
  EXPECT_EQ(rendered(*control, "<stop><MASK></s>"), (Ids{1, 3, 2})) << "all control pieces, whatever their names";
}

TEST(SentencePiece, ATemplateReadsTheSpecialTokensOfTheModel) {
  const auto shown = [](const Tokenizer& tokenizer) {
    std::string all;
    for (const auto& one : tokenizer.named_tokens()) all += text(one.name, " ", one.text, " ", one.id, "\n");
    return all;
  };
  for (const auto* type : {"GPTSentencePieceTokenizer", "Llama2Tokenizer"})
    EXPECT_EQ(shown(*tokenizer_of_type(type, model_file("bpe"))),
              "bos_token <s> 1\neos_token </s> 2\nunk_token <unk> 0\n");
  EXPECT_EQ(shown(*tokenizer_of_type("GPTSentencePieceTokenizer", model_file("unigram"))),
            "eos_token </s> 1\nunk_token <unk> 2\npad_token <pad> 0\n");
  EXPECT_EQ(shown(*tokenizer_of_type("SentencePieceTokenizer", model_file("bpe"))),
            "bos_token <s> 1\neos_token </s> 2\nunk_token <unk> 0\nsep_token <SEP> 421\npad_token <PAD> 424\n"
            "cls_token <CLS> 420\nmask_token <MASK> 423\n");
}

class SentencePieceFile : public InOwnFolder {};

TEST_F(SentencePieceFile, ThatIsNoneIsRefusedWithItsName) {
  const auto open = [](const std::string& file) {
    return [file] { (void)tokenizer_of_type("Llama2Tokenizer", file); };
  };
  expect_refused(open(""), {"Llama2Tokenizer needs tokenizer_model"});
  expect_refused(open("absent.model"), {"absent.model", "SentencePiece model"});
  expect_refused(open("."), {"folder"});
  write("empty.model", "");
  expect_refused(open("empty.model"), {"empty.model", "not a SentencePiece model"});
  write("text.model", "{\"a\": 1}\n");
  expect_refused(open("text.model"), {"text.model", "not a SentencePiece model"});
  std::ifstream whole(model_file("bpe"), std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(whole), {});
  write("cut.model", bytes.substr(0, bytes.size() / 2));
  expect_refused(open("cut.model"), {"cut.model", "damaged"});
}

// Each character would become a text of that length, in the library's memory.
TEST_F(SentencePieceFile, WithALongReplacementIsRefused) {
  const auto field = [](char tag, const std::string& content) {
    const auto size = static_cast<unsigned>(content.size());
    return std::string{tag, static_cast<char>((size & 0x7FU) | 0x80U), static_cast<char>(size >> 7U)} + content;
  };
  const std::string map = std::string("\x04\0\0\0\0\0\0\0ab\0", 11) + std::string(1000, 'x') + std::string(1, '\0');
  std::ifstream good(model_file("bpe"), std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(good)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(content.empty());
  for (const char spec : {'\x1A', '\x2A'}) {  // normalizer_spec, denormalizer_spec
    std::ofstream("long.model", std::ios::binary) << content << field(spec, field('\x12', map));
    expect_refused([] { SentencePieceModel("long.model"); }, {"long.model: ", "1000 bytes", "the limit is 256"});
  }
}

TEST_F(SentencePieceFile, WithoutTheSpecialPiecesOfATypeIsRefused) {
  expect_refused([] { (void)tokenizer_of_type("GPTSentencePieceTokenizer", model_file("word")); },
                 {"word.model", "end-of-sentence", "eos_id is -1"});
  expect_refused([] { (void)tokenizer_of_type("Llama2Tokenizer", model_file("unigram")); },
                 {"unigram.model", "beginning-of-sentence", "GPTSentencePieceTokenizer"});
  expect_refused([] { (void)tokenizer_of_type("SentencePieceTokenizer", model_file("bpe"), "-1"); },
                 {"vocab_extra_ids"});
}

}  // namespace
}  // namespace tessera::tokenizers
