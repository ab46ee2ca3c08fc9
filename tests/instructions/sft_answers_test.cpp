// Which tokens of a conversation are learned, with tokenizers of several types.
#include <algorithm>

#include "framework/instructions/sft_dataset.h"
#include "framework/options/choose.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"
#include "tests/tokenizers/byte_tokenizer.h"

namespace tessera::instructions {
namespace {

using Ids = std::vector<std::int32_t>;

const std::vector<std::string> special_tokens = {"<unk>", "<s>", "</s>"};

tokenizers::SftFormat answers_only(const std::string& chat_template) {
  tokenizers::SftFormat format;
  format.prompt_format = "default";
  format.chat_template = chat_template;
  format.answers_only = true;
  return format;
}

Json conversation_of(const std::string& question, const std::string& answer) {
  return Json::array({{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}});
}

struct Encoded {
  Encoded(const tokenizers::Tokenizer& tokenizer, const tokenizers::SftFormat& format, const Json& conversation) {
    tokenizers::SftTokenizer(&tokenizer, format).encode(conversation, tokens, targets);
    for (const auto target : targets)
      if (target != tokenizers::SftTokenizer::ignored) learned.push_back(target);
  }
  Ids tokens, targets, learned;
};

class SftAnswers : public InOwnFolder {};

TEST_F(SftAnswers, EndWithTheTokenThatTheTemplateWritesForEveryTypeOfTokenizer) {
  const auto format = answers_only(
      "{{ bos_token }}{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
      "{% endfor %}");
  for (const auto* type : {"GPTSentencePieceTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer"}) {
    const auto model = chosen(
        tokenizers::tokenizers(),
        {{"tokenizer_type", type}, {"tokenizer_model", std::string(TESTS_DATA) + "/sentencepiece/models/bpe.model"}});
    const Encoded got(*model, format, conversation_of("Lord</s>", "God"));
    EXPECT_EQ(got.tokens.front(), 1) << type;
    EXPECT_EQ(std::count(got.tokens.begin(), got.tokens.end(), 1), 1) << type;
    EXPECT_EQ(got.learned.back(), 2) << type;
    EXPECT_EQ(model->decode(Ids(got.learned.begin(), got.learned.end() - 1)), "God") << type;
  }
}

TEST_F(SftAnswers, OfNemotronArePaddedWithTheTokenOfTikTokenizer) {
  const auto model =
      options::choose(tokenizers::tokenizers(), text("{tokenizer_type: TikTokenizer, tokenizer_model: ", TESTS_DATA,
                                                     "/tiktoken/vocab.json, tiktoken_pattern: v2, vocab_size: 900, "
                                                     "tiktoken_num_special_tokens: 300}"))
          .make();
  const tokenizers::SftTokenizer sft(model.get(), {});
  EXPECT_EQ(sft.pad(), 233);
  const Encoded got(*model, {}, conversation_of("a", "of"));
  EXPECT_EQ(std::count(got.tokens.begin(), got.tokens.end(), 11), 2) << "<SPECIAL_11>User, <SPECIAL_11>Assistant";
  EXPECT_EQ(model->decode(got.learned), "of\n");
}

}  // namespace
}  // namespace tessera::instructions
