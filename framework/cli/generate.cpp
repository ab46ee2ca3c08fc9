#include "framework/cli/generate.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "framework/base/json.h"
#include "framework/cli/adapter_arguments.h"
#include "framework/cli/chat_prompt.h"
#include "framework/cli/inference_settings.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/cli/threads_argument.h"
#include "framework/cli/trained_pictures.h"
#include "framework/cli/visual_prompt.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/log/log.h"
#include "framework/model/generation.h"
#include "framework/recipe/saved_model.h"
#include "framework/tokenizers/continuation.h"

namespace tessera::cli {
namespace {

const log::Logger generate_logger("generate");

struct GenerateFlags {
  std::string folder, model, prompt, messages;
  bool chat = false;
  std::vector<std::int32_t> prompt_tokens;
  model::Sampling sampling;
  std::int64_t tokens = 200, samples = 1;
  ThreadsArgument threads;
  std::string image_backend, image_loading;  ///< empty: as the model was trained
  std::string config;
  std::vector<std::int32_t> end_tokens;
  std::vector<std::string> images, adapters, ignored_keys;
};

/// The prompt's ids; an empty prompt becomes the end-of-document token.
std::vector<std::int32_t> prompt_ids(const tokenizers::Tokenizer& tokenizer, const std::string& prompt) {
  auto ids = tokenizer.encode(prompt);
  if (ids.empty()) ids.push_back(tokenizer.eod());
  return ids;
}

std::string folder_of(const GenerateFlags& flags) {
  if (flags.folder.empty() == flags.model.empty()) throw ConfigError("generate: give one of FOLDER and --model FOLDER");
  return flags.folder.empty() ? flags.model : flags.folder;
}

/// Reports that a text ended because it reached the model's maximum sequence length.
void tell_end(const model::Model& model, std::size_t prompt, std::int64_t made, std::int64_t asked) {
  if (made<asked&& static_cast<std::int64_t>(prompt) + made> model.most_positions())
    generate_logger.info(text("generate: stopped at the maximum sequence length ", model.most_positions(), ", after ",
                              made, " of ", asked, " tokens"));
}

bool chats(const GenerateFlags& flags) { return flags.chat || !flags.messages.empty() || !flags.images.empty(); }

/// "FILE: conversation 2: "; without the number if there is one only.
std::string place_in(const std::string& file, const char* what, std::size_t index, std::size_t count) {
  return count == 1 ? file + ": " : text(file, ": ", what, " ", index + 1, ": ");
}

/// What `work` returns. Its errors begin with `place`.
template <class Work>
auto with_place(const std::string& place, const Work& work) {
  try {
    return work();
  } catch (const ConfigError& error) {
    if (place.empty()) throw;
    constexpr std::string_view speaker = "generate: ";
    const std::string_view words = error.what();
    throw ConfigError(text(place, words.substr(words.starts_with(speaker) ? speaker.size() : 0)));
  }
}

/// The conversations to answer. Read before the model is loaded.
std::vector<VisualConversation> conversations_of(const GenerateFlags& flags) {
  if (!flags.messages.empty()) {
    const auto given = conversations_in(flags.messages);
    if (given.size() > 1 && !flags.images.empty())
      throw ConfigError(text("generate: ", flags.messages, " has ", given.size(),
                             " conversations, so --image does not say which one an image belongs to; name the file in "
                             "the conversation: {\"type\": \"image\", \"image\": \"",
                             flags.images[0], "\"}"));
    const auto folder = std::filesystem::path(flags.messages).parent_path();
    std::vector<VisualConversation> all;
    for (const auto& messages : given) {
      const auto place = place_in(flags.messages, "conversation", all.size(), given.size());
      all.push_back(with_place(place, [&] { return with_images(messages, flags.images, folder); }));
      all.back().place = place;
    }
    return all;
  }
  if (flags.prompt.empty())
    throw ConfigError(text("generate: ", flags.images.empty() ? "--chat" : "--image",
                           " has nothing to answer; give --prompt TEXT, a user's message, or --messages FILE"));
  return {with_images(conversation_of(flags.prompt), flags.images, ".")};
}

/// How the model was trained to read pictures, but for what the flags say.
PictureSettings pictures_of(const GenerateFlags& flags, const recipe::TrainedModel& trained) {
  auto settings = trained_pictures(trained, tower_that_sees(trained));
  if (!flags.image_backend.empty())
    settings.processor.backend = flags.image_backend == "pil" ? images::Backend::pil : images::Backend::torchvision;
  if (!flags.image_loading.empty())
    settings.loading = flags.image_loading == "qwen_vl_utils" ? PictureLoading::qwen_vl_utils
                       : flags.image_loading == "load_image"  ? PictureLoading::load_image
                                                              : PictureLoading::rgb;
  return settings;
}

/// The end-of-document token, and those that the model's files name: chat models end a message by another one.
std::vector<std::int32_t> stop_tokens(const recipe::TrainedModel& trained) {
  auto all = hugging_face::end_tokens(trained.base);
  all.push_back(trained.tokenizer->eod());
  for (const auto& token : trained.tokenizer->named_tokens())
    if (token.name == "eos_token") all.push_back(token.id);
  return all;
}

/// What to continue: a text, or a conversation that the model's chat template renders. Owns its tokens and images.
class TextPrompt {
 public:
  /// `pictures` may be null if the conversation has no images and videos.
  TextPrompt(const GenerateFlags& flags, const VisualConversation& conversation, const recipe::TrainedModel& trained,
             const PictureSettings* pictures) {
    const auto* tower = trained.recipe.architecture->vision();
    tokens_ = chats(flags) ? chat_prompt(*trained.tokenizer, conversation.messages)
                           : prompt_ids(*trained.tokenizer, flags.prompt);
    if (tower != nullptr) check_placeholders(tokens_, conversation.visuals, *tower);
    if (!conversation.visuals.empty())
      seen_ = std::make_unique<VisualPrompt>(tokens_, conversation.visuals, *tower, *pictures);
  }
  model::Prompt get() const { return seen_ ? seen_->prompt() : model::Prompt(tokens_); }

 private:
  std::vector<std::int32_t> tokens_;
  std::unique_ptr<VisualPrompt> seen_;
};

/// Text in, text out. Of conversations only the answers are printed, in their order; some are generated together.
class TextGenerator {
 public:
  TextGenerator(const GenerateFlags& flags, const recipe::TrainedModel& trained, autograd::Tape& tape)
      : flags_(flags), trained_(trained), tape_(tape) {}

  /// Throws ConfigError before the first answer if a conversation cannot be answered, the model has no tokenizer, or it
  /// reads no images and there are some.
  void run(std::span<const VisualConversation> conversations) {
    prepare(conversations);
    constexpr std::size_t together = 8;
    if (conversations.size() > together)
      for (const auto& one : conversations) (void)prompt_of(one);
    while (!conversations.empty()) {
      const auto some = conversations.first(std::min(together, conversations.size()));
      conversations = conversations.subspan(some.size());
      std::vector<TextPrompt> made;
      std::vector<model::Prompt> prompts;
      for (const auto& one : some) made.push_back(prompt_of(one));
      for (const auto& one : made) prompts.push_back(one.get());
      if (may_be_together(*trained_.model, prompts, limits_))
        print_together(prompts);
      else
        for (const auto& prompt : prompts) print_one(prompt);
    }
  }

 private:
  void prepare(std::span<const VisualConversation> conversations) {
    if (std::ranges::any_of(conversations, [](const auto& one) { return !one.visuals.empty(); }))
      pictures_ = pictures_of(flags_, trained_);
    if (!trained_.tokenizer)
      throw ConfigError(text(trained_.folder.string(),
                             ": has no tokenizer that this program knows, so there is no text to "
                             "generate; give --prompt-tokens, a list of token ids"));
    limits_ = {flags_.tokens, stop_tokens(trained_), trained_.tokenizer->vocab_size()};
    limits_.stop_tokens.insert(limits_.stop_tokens.end(), flags_.end_tokens.begin(), flags_.end_tokens.end());
  }
  TextPrompt prompt_of(const VisualConversation& conversation) const {
    return with_place(conversation.place, [&] {
      TextPrompt made(flags_, conversation, trained_, pictures_ ? &*pictures_ : nullptr);
      model::check_prompt(*trained_.model, made.get(), limits_.vocabulary);
      return made;
    });
  }
  /// Each token as soon as it is there.
  void print_one(const model::Prompt& prompt) {
    for (std::int64_t i = 0; i < flags_.samples; ++i) {
      tokenizers::Continuation answer(*trained_.tokenizer, prompt.tokens);
      if (!chats(flags_)) std::cout << flags_.prompt << std::flush;
      const auto made =
          model::generate(*trained_.model, tape_, prompt, flags_.sampling, limits_, static_cast<std::uint64_t>(i),
                          [&](std::int32_t token) { std::cout << answer.push(token) << std::flush; });
      std::cout << answer.finish() << std::endl;
      tell_end(*trained_.model, prompt.tokens.size(), made, flags_.tokens);
    }
  }

  /// When all answers are there; all samples of a conversation follow one another.
  void print_together(std::span<const model::Prompt> prompts) {
    std::vector<std::string> answers(prompts.size());
    for (std::int64_t i = 0; i < flags_.samples; ++i) {
      std::vector<tokenizers::Continuation> texts;
      for (const auto& prompt : prompts) texts.emplace_back(*trained_.tokenizer, prompt.tokens);
      model::generate_together(
          *trained_.model, tape_, prompts, flags_.sampling, limits_, static_cast<std::uint64_t>(i),
          [&](std::size_t which, std::int32_t token) { answers[which] += texts[which].push(token); });
      for (std::size_t k = 0; k < prompts.size(); ++k) answers[k] += texts[k].finish() + "\n";
    }
    for (const auto& answer : answers) std::cout << answer;
    std::cout << std::flush;
  }

  const GenerateFlags& flags_;
  const recipe::TrainedModel& trained_;
  autograd::Tape& tape_;
  std::optional<PictureSettings> pictures_;
  model::GenerationLimits limits_;
};

/// Reads ids and prints the ids of the continuation, one line per sample. Only --tokens ends the generation, because
/// the end-of-document id is known only with a tokenizer.
void generate_tokens(const GenerateFlags& flags, const recipe::TrainedModel& trained, autograd::Tape& tape) {
  if (const auto* vision = trained.recipe.architecture->vision()) check_placeholders(flags.prompt_tokens, {}, *vision);
  const model::GenerationLimits limits{flags.tokens, {}, trained.model->vocabulary()};
  for (std::int64_t i = 0; i < flags.samples; ++i) {
    const char* between = "";
    const auto made = model::generate(*trained.model, tape, flags.prompt_tokens, flags.sampling, limits,
                                      static_cast<std::uint64_t>(i), [&](std::int32_t token) {
                                        std::cout << between << token << std::flush;
                                        between = " ";
                                      });
    std::cout << std::endl;
    tell_end(*trained.model, flags.prompt_tokens.size(), made, flags.tokens);
  }
}

/// What the file of --config says, which takes the place of flags.
InferenceSettings apply_settings(GenerateFlags& flags) {
  if (flags.config.empty()) return {};
  auto settings = read_inference_settings(flags.config);
  if (settings.prompts.empty())
    throw ConfigError(text(flags.config, ": has no prompts; give a text or a list of texts"));
  if (flags.folder.empty() && flags.model.empty() && settings.folder) flags.folder = *settings.folder;
  log_notes(settings.notes, {}, true);
  flags.chat = true;
  flags.tokens = settings.tokens;
  flags.sampling = settings.sampling;
  flags.end_tokens = settings.end_tokens;
  if (flags.image_loading.empty()) flags.image_loading = "qwen_vl_utils";  // as their pipeline does
  return settings;
}

void generate(GenerateFlags flags, const CommandContext& context) {
  const auto settings = apply_settings(flags);
  const auto folder = folder_of(flags);
  std::vector<VisualConversation> conversations;
  if (flags.config.empty())
    conversations = chats(flags) ? conversations_of(flags) : std::vector<VisualConversation>(1);
  else
    for (const auto& prompt : settings.prompts) {
      const auto place = place_in(flags.config, "prompt", conversations.size(), settings.prompts.size());
      conversations.push_back(
          with_place(place, [&] { return with_images(conversation_of(prompt), settings.images, "."); }));
      conversations.back().place = place;
    }
  context.output.pass_text();
  kernels::Threads threads(flags.threads.count());
  for_each_adapter(folder, flags.adapters, context.registries, [&](const auto& name, const auto& trained) {
    log_notes(trained.notes, {}, true);
    if (!name.empty()) std::cout << name << ":" << std::endl;
    Arena arena;
    autograd::Tape tape(arena, threads, false);
    if (flags.prompt_tokens.empty())
      TextGenerator(flags, trained, tape).run(conversations);
    else
      generate_tokens(flags, trained, tape);
  });
}

}  // namespace

void add_generate_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("generate", "Generate text with a trained model");
  const auto flags = std::make_shared<GenerateFlags>();
  command->add_option("FOLDER", flags->folder,
                      "A checkpoint, a run folder: its newest checkpoint, or a folder of Hugging Face Transformers");
  command->add_option("--model", flags->model, "The same");
  add_adapter_arguments(*command, flags->adapters);
  auto* prompt = command->add_option("--prompt", flags->prompt, "Prompt")->as_written();
  auto* tokens = command->add_option("--prompt-tokens", flags->prompt_tokens,
                                     "Prompt as token ids, \"17 4 9\"; the output is ids too");
  tokens->delimiter(' ')->excludes(prompt);
  auto* chat =
      command->add_flag("--chat", flags->chat,
                        "The prompt is a user's message: it is rendered by the model's chat template, and only "
                        "the answer is printed");
  auto* messages = command->add_option(
      "--messages", flags->messages,
      "JSON file with a conversation to answer, [{\"role\": \"user\", \"content\": \"...\"}, ...], or with a list of "
      "them, which are answered together, up to eight at a time; as --chat");
  messages->type_name("FILE")->excludes(prompt)->excludes(tokens);
  chat->excludes(tokens);
  auto* images = command->add_option(
      "--image", flags->images,
      "Picture (PNG, JPEG or WebP) in front of the user's message, or for an image part of --messages "
      "without a file; give it once for each; as --chat");
  images->type_name("FILE")->one_value_each()->excludes(tokens);
  command
      ->add_option("--image-backend", flags->image_backend,
                   "How images are resized: as Transformers' processor does it with torchvision or with Pillow (pil); "
                   "default: as the model was trained, else as its preprocessor_config.json says, else torchvision")
      ->one_of({"torchvision", "pil"});
  command
      ->add_option("--image-loading", flags->image_loading,
                   "How pictures become RGB: rgb (alpha is dropped, EXIF turns nothing), load_image of Transformers "
                   "(turned by EXIF) or qwen_vl_utils (alpha on white); default: with --config qwen_vl_utils, else as "
                   "the model was trained (dataset_config.turn_by_exif), else rgb")
      ->one_of({"rgb", "load_image", "qwen_vl_utils"});
  auto* most = command->add_option("--tokens", flags->tokens, "Maximum number of tokens to generate");
  most->show_default()->positive();
  command->add_option("--samples", flags->samples, "Number of texts to generate")->show_default()->positive();
  auto* temperature = command->add_option("--temperature", flags->sampling.temperature,
                                          "Divides the logits; 0: always the most likely token");
  temperature->show_default()->not_negative();
  auto* top_k = command->add_option("--top-k", flags->sampling.top_k, "Only the k most likely tokens; 0: all");
  top_k->show_default()->not_negative();
  auto* top_p = command->add_option("--top-p", flags->sampling.top_p,
                                    "Only the most likely tokens that together have this probability");
  top_p->show_default()->between(1e-6, 1.0);
  auto* penalty = command->add_option("--repetition-penalty", flags->sampling.repetition_penalty,
                                      "Makes tokens less likely that are in the prompt or were generated: divides "
                                      "their positive logits, multiplies negative ones");
  penalty->show_default()->between(1e-3, 1e3);
  auto* config = command->add_option("--config", flags->config,
                                     "JSON file of MindSpeed-MM's inference_qwen2vl scripts: prompts, image, folder of "
                                     "the model and generation_config; FOLDER, if given, is the model");
  config->type_name("FILE");
  for (auto* other : {prompt, tokens, messages, images, most, temperature, top_k, top_p, penalty})
    config->excludes(other);
  command->add_option("--seed", flags->sampling.seed, "Seed of the random numbers")->show_default();
  flags->threads.add_to(*command);
  add_ignore_key_argument(*command, flags->ignored_keys);
  command->callback([flags, &context] {
    context.ignore_keys(flags->ignored_keys);
    generate(*flags, context);
  });
}

}  // namespace tessera::cli
