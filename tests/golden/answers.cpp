#include "tests/golden/answers.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/base/files.h"
#include "framework/base/sha256.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/cli/chat_prompt.h"
#include "framework/cli/trained_pictures.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/model/vision_items.h"
#include "framework/nn/key_value_cache.h"
#include "framework/options/same.h"
#include "framework/recipe/saved_model.h"
#include "tests/golden/comparison.h"
#include "tests/golden/model_of_case.h"
#include "tests/golden/registries.h"

namespace tessera {
namespace golden {
namespace {

namespace fs = std::filesystem;
using LibraryJson = nlohmann::json;

class AnswerCases {
 public:
  explicit AnswerCases(const fs::path& folder)
      : folder_(folder),
        facts_(LibraryJson::parse(read_file(folder / "generation.json"))),
        answers_(folder / "answers.safetensors"),
        trained_(recipe::load_trained(folder / "hf", all_registries())) {}

  std::vector<CaseResult> run() {
    std::vector<CaseResult> results;
    const auto& prompts = facts_.at("prompts");
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Comparison comparison;
      const auto name = text("prompt ", i);
      try {
        const auto what = judge(prompts[i], text("prompt.", i, "."), comparison);
        results.push_back({name, comparison.good() ? CaseResult::Verdict::passed : CaseResult::Verdict::failed,
                           text(what, "; ", comparison.summary())});
      } catch (const std::exception& error) {
        results.push_back({name, CaseResult::Verdict::failed, error.what()});
      }
    }
    if (fs::exists(folder_ / "processor_transformers5")) results.push_back(other_spelling());
    return results;
  }

 private:
  /// What the folders of Transformers 5 say in other words is the same.
  CaseResult other_spelling() const {
    Comparison comparison;
    const auto& vision = *trained_.recipe.architecture->vision();
    const cli::Visual picture{false, {(folder_ / "pictures/size_100x100.png").string()}};
    const auto pixels = [&](const char* folder) {
      const cli::VisualPrompt prompt({static_cast<std::int32_t>(vision.image_token_id)}, {picture}, vision,
                                     with_pil(folder, vision));
      return doubles_of(prompt.batch().view().field<float>(model::pixel_field));
    };
    comparison.compare("pixels", pixels("processor_transformers5"), pixels("hf"), 0);
    const options::Mappings mappings;
    const auto four = hugging_face::read_hugging_face_config(folder_ / "hf/config.json", mappings).model_config,
               five =
                   hugging_face::read_hugging_face_config(folder_ / "config.transformers5.json", mappings).model_config;
    for (const auto& [key, value] : four.fields)
      if (const auto* other = five.find(key); other == nullptr || !options::same(*other, value))
        comparison.wrong(text(key, " is another than config.json gives"));
    return {"transformers5", comparison.good() ? CaseResult::Verdict::passed : CaseResult::Verdict::failed,
            text(four.fields.size(), " options as from config.json; ", comparison.summary())};
  }

  cli::PictureSettings with_pil(const char* folder, const model::VisionOptions& vision) const {
    cli::PictureSettings made{.processor = cli::processor_of(folder_ / folder, vision)};
    made.processor.backend = images::Backend::pil;
    return made;
  }

  std::string judge(const LibraryJson& prompt, const std::string& prefix, Comparison& comparison) {
    const auto conversation = cli::with_images(parse_json(prompt.at("messages").dump()), {}, folder_ / "pictures");
    const auto ids = cli::chat_prompt(*trained_.tokenizer, conversation.messages);
    const auto& vision = *trained_.recipe.architecture->vision();
    // A prompt of text alone has positions of one axis; as a prompt without images it has the same on all three.
    const cli::VisualPrompt seen(ids, conversation.visuals, vision, with_pil("hf", vision));
    const auto& batch = seen.batch();
    const auto tokens = prompt.at("input_ids").get<std::vector<std::int32_t>>();
    if (!std::ranges::equal(batch.tokens, tokens)) comparison.wrong("the tokens are others");
    if (seen.shift() != prompt.at("rope_delta")) comparison.wrong(text("the delta is ", seen.shift()));
    compare_positions(prefix, batch, comparison);
    compare_pixels(prompt, batch, comparison);
    compare_answer(prompt, prefix, seen, comparison);
    return text(tokens.size(), " tokens, ", conversation.visuals.size(), " images and videos, ",
                prompt.at("new_tokens").size(), " new tokens");
  }

  void compare_positions(const std::string& prefix, const Batch& batch, Comparison& comparison) const {
    const auto recorded = answers_.tensor(prefix + "position_ids").as<std::int64_t>();
    if (!std::ranges::equal(batch.positions, recorded)) comparison.wrong("the positions are others");
  }

  static void compare_pixels(const LibraryJson& prompt, const Batch& batch, Comparison& comparison) {
    const auto pixels = std::as_bytes(batch.view().field<float>(model::pixel_field));
    const std::string bytes(reinterpret_cast<const char*>(pixels.data()), pixels.size());
    for (const char* kind : {"pixel_values_sha256", "pixel_values_videos_sha256"})
      if (prompt.contains(kind) && sha256(bytes) != prompt.at(kind).at("pil"))
        comparison.wrong(text(kind, ": the pixels are others"));
  }

  void compare_answer(const LibraryJson& prompt, const std::string& prefix, const cli::VisualPrompt& seen,
                      Comparison& comparison) {
    const auto expected = prompt.at("new_tokens").get<std::vector<std::int32_t>>();
    const auto recorded = answers_.tensor(prefix + "logits").floats();
    const auto width = recorded.size() / expected.size();
    double largest = 0;
    for (const auto one : recorded) largest = std::max(largest, std::abs(double{one}));
    const auto tolerance = 8 * std::max(prompt.at("float32_spread").get<double>(), 1e-6 * largest);
    const auto given = seen.prompt();
    const auto length = std::ssize(given.tokens);
    auto cache = trained_.model->make_cache(1, length + std::ssize(expected));
    Arena arena;
    kernels::Threads threads(2);
    autograd::Tape tape(arena, threads, false);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto fed = i == 0 ? given.tokens : std::span<const std::int32_t>(expected).subspan(i - 1, 1);
      {
        const auto logits =
            trained_.model->next_logits(tape, fed, std::ssize(fed), cache, i == 0 ? given.given : nullptr);
        if (i == 0) cache.shift_positions(0, given.position_shift);
        const auto own = logits.floats().first(width);
        comparison.compare(text("logits of new token ", i), doubles_of(own),
                           doubles_of(recorded.subspan(i * width, width)), tolerance);
        const auto chosen = std::ranges::max_element(own) - own.begin();
        if (chosen != expected[i]) comparison.wrong(text("new token ", i, " is ", chosen, ", not ", expected[i]));
      }
      tape.clear();
    }
    const auto ends = hugging_face::end_tokens(folder_ / "hf");
    const bool stops = std::ranges::find(ends, expected.back()) != ends.end();
    if (stops != prompt.at("stopped_at_eos").get<bool>()) comparison.wrong("the answer ends at another token");
  }

  fs::path folder_;
  LibraryJson facts_;
  checkpoint::SafetensorsReader answers_;
  recipe::TrainedModel trained_;
};

}  // namespace
}  // namespace golden

std::vector<CaseResult> run_answer_cases(const std::filesystem::path& folder) {
  return golden::AnswerCases(folder).run();
}

}  // namespace tessera
