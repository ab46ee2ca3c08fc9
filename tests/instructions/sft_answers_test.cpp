// Which tokens of a conversation are learned, with tokenizers of several types.
#include <algorithm>
#include <utility>

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

/// Counts the texts that it encodes. `joins`: a blank and the letter behind it are one token.
class Watched final : public tokenizers::ByteTokenizer {
 public:
  explicit Watched(bool joins = false) : ByteTokenizer(special_tokens, ""), joins_(joins) {}
  class Watching final : public Encoder {
   public:
    explicit Watching(const Watched& owner) : owner_(owner) {}
    void encode(std::string_view words, std::vector<std::int32_t>& ids) override {
      ++owner_.texts;
      for (std::size_t i = 0; i < words.size(); ++i) {
        const bool joined = owner_.joins_ && words[i] == ' ' && i + 1 < words.size();
        if (joined) ++i;
        ids.push_back((joined ? 512 : 0) + static_cast<unsigned char>(words[i]));
      }
    }

   private:
    const Watched& owner_;
  };
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<Watching>(*this); }
  mutable std::int64_t texts = 0;

 private:
  bool joins_;
};

const std::string brief_template =
    "{% for m in messages %}{{ m.role[:1] }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}";

class SftAnswers : public InOwnFolder {
 protected:
  /// Tokens of sample 0 of the file c.jsonl, up to the first byte 0, and those that are learned.
  static std::pair<std::string, std::string> sample(const tokenizers::Tokenizer& tokenizer,
                                                    const tokenizers::SftFormat& format) {
    SftDataset::Request request;
    request.lines = {0, 1};
    request.samples = 1;
    request.seq_length = 60;
    const SftDataset data(std::make_shared<ConversationFile>("c.jsonl"),
                          std::make_shared<tokenizers::SftTokenizer>(&tokenizer, format), request);
    Ids tokens(60), labels(60), positions(60), starts(60);
    std::vector<float> mask(60);
    data.read(0, {.samples = 1,
                  .seq_length = 60,
                  .tokens = tokens,
                  .labels = labels,
                  .loss_mask = mask,
                  .positions = positions,
                  .document_start = starts});
    std::string all, learned;
    for (std::size_t i = 0; i < 60; ++i) {
      if (tokens[i] < 256) all += static_cast<char>(tokens[i]);
      if (mask[i] > 0) learned += static_cast<char>(labels[i]);
    }
    return {all, learned};
  }
};

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

TEST_F(SftAnswers, WhoseTokensJoinWithOthersAreRefusedWithTheReason) {
  const Watched tokenizer(true);
  const auto refused = [&](const std::string& chat_template, const std::string& why) {
    auto conversation = conversation_of("a", "one");
    conversation.push_back({{"role", "user"}, {"content", "b"}});
    expect_refused([&] { Encoded(tokenizer, answers_only(chat_template), conversation); }, {"message 2: ", why});
  };
  const std::string named = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  refused(named + "{% if add_generation_prompt %}assistant: {% endif %}",
          "the last token of the prompt joins with the answer");
  EXPECT_EQ(Encoded(tokenizer, answers_only(named + "{% if add_generation_prompt %}assistant:{% endif %}"),
                    conversation_of("a", "one"))
                .learned,
            (Ids{512 + 'o', 'n', 'e', '\n'}));
  refused(
      "{% for m in messages %}{{ m.role[:1] }}{{ m.content }} {% endfor %}{% if add_generation_prompt %}a{% endif %}",
      "the last token of the answer joins with the text behind it");
  refused("{% for m in messages %}{{ m.role if loop.last else '' }}{{ m.content }}{% endfor %}",
          "differently when more messages follow");
}

TEST_F(SftAnswers, BehindTheEndOfASampleAreNotEncodedAlone) {
  auto conversation = Json::array();
  std::string line;
  for (int turn = 0; turn < 200; ++turn) {
    for (const auto& message : conversation_of("q", "r")) conversation.push_back(message);
    line += std::string(line.empty() ? "" : ", ") +
            R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "r"})";
  }
  write("c.jsonl", "{\"messages\": [" + line + "]}\n");
  const Watched tokenizer;
  auto format = answers_only(brief_template);
  const auto got = sample(tokenizer, format);
  EXPECT_EQ(got.first.substr(0, 8), "uqaruqar");
  EXPECT_EQ(got.second, std::string(15, 'r'));
  EXPECT_LT(tokenizer.texts, 40) << "two for each answer of the sample, not for each of 200";
  for (const bool mask_history : {false, true}) {
    format.mask_history = mask_history;
    const tokenizers::SftTokenizer sft(&tokenizer, format);
    Ids tokens, targets, same_tokens, cut_targets;
    sft.encode(conversation, tokens, targets);
    sft.encode(conversation, same_tokens, cut_targets, {}, 60);
    EXPECT_EQ(same_tokens, tokens);
    ASSERT_EQ(cut_targets.size(), targets.size());
    EXPECT_TRUE(std::equal(targets.begin(), targets.begin() + 60, cut_targets.begin())) << mask_history;
  }
}

TEST_F(SftAnswers, HaveTheToolsOfTheirLineInThePrompt) {
  const Watched tokenizer;
  const auto with_tools = answers_only("{% if tools %}{{ tools[0].name }};{% endif %}" + brief_template);
  const auto line = [](const std::string& tools) {
    write("c.jsonl", R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}, )"
                     R"({"role": "user", "content": "s"}, {"role": "assistant", "content": "t"}], "tools": )" +
                         tools + "}\n");
  };
  line(R"([{"name": "add"}])");
  const auto got = sample(tokenizer, with_tools);
  EXPECT_EQ(got.first.substr(0, 12), "add;uqarusat");
  EXPECT_EQ(got.second, "rt");
  expect_refused([&] { sample(tokenizer, answers_only(brief_template)); },
                 {"c.jsonl:1: ", "'tools'", "the chat template does not render them"});
  expect_refused([&] { sample(tokenizer, {.prompt_format = "identity", .chat_template = {}, .answers_only = {}}); },
                 {"c.jsonl:1: ", "'tools'"});
  for (const auto* none : {"null", "[]", "\"\""}) {
    line(none);
    EXPECT_EQ(sample(tokenizer, with_tools).first.substr(0, 8), "uqarusat") << none;
    EXPECT_EQ(sample(tokenizer, answers_only(brief_template)).second, "rt") << none;
  }
  for (const auto* wrong : {"\"[]\"", "[1]", "{\"name\": \"add\"}"}) {
    line(wrong);
    expect_refused([&] { sample(tokenizer, with_tools); }, {"c.jsonl:1: ", "'tools' is not a list of objects"});
  }
}

}  // namespace
}  // namespace tessera::instructions
