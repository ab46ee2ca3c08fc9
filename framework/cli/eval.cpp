#include "framework/cli/eval.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <numbers>
#include <optional>

#include "framework/base/json.h"
#include "framework/cli/adapter_arguments.h"
#include "framework/cli/eval_records.h"
#include "framework/cli/meter.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/cli/threads_argument.h"
#include "framework/files/input_file.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/recipe/saved_model.h"
#include "framework/training/reports/score.h"

namespace tessera::cli {
namespace {

struct EvalFlags {
  std::string folder, text, data;
  EvaluatedRecords records;
  std::int64_t stride = 0;
  ThreadsArgument threads;
  bool json = false;
  std::vector<std::string> adapters, ignored_keys;
};

/// Tokens to score, preceded by one context token, and the number of bytes that they encode (0: unknown).
struct Scored {
  std::vector<std::int32_t> tokens;
  std::uint64_t bytes = 0;
};

Scored of_text(const std::string& content, const tokenizers::Tokenizer& tokenizer) {
  Scored out;
  out.tokens = tokenizer.encode(content);
  out.tokens.insert(out.tokens.begin(), tokenizer.eod());
  out.bytes = content.size();
  return out;
}

/// Bytes of the text of one sequence, which was encoded by itself; the end of a document is not a text.
std::uint64_t text_bytes(std::span<const std::int32_t> sequence, const tokenizers::Tokenizer& tokenizer) {
  const auto decoder = tokenizer.decoder();
  std::uint64_t bytes = 0;
  for (const auto token : sequence)
    if (token != tokenizer.eod()) bytes += decoder->push(token).size();
  return bytes + decoder->finish().size();
}

Scored of_data(const std::string& prefix, const tokenizers::Tokenizer* tokenizer) {
  const indexed::IndexedDataset data(prefix);
  Scored out;
  if (tokenizer) out.tokens.push_back(tokenizer->eod());
  for (std::int64_t i = 0; i < data.sequences(); ++i) {
    const auto before = out.tokens.size();
    out.tokens.resize(before + static_cast<std::size_t>(data.length(i)));
    const auto sequence = std::span(out.tokens).subspan(before);
    data.read(i, 0, sequence);
    if (tokenizer) out.bytes += text_bytes(sequence, *tokenizer);
  }
  return out;
}

/// `content`: of the file of --text.
Scored to_score(const EvalFlags& flags, const std::string& content, const tokenizers::Tokenizer* tokenizer) {
  if (!flags.data.empty()) return of_data(flags.data, tokenizer);
  if (!tokenizer)
    throw ConfigError("eval: the model was trained without a tokenizer; give --data PREFIX instead of --text");
  return of_text(content, *tokenizer);
}

/// `adapter`: name of the adapter; empty: none are given.
void print(const EvalFlags& flags, const std::string& adapter, const recipe::TrainedModel& trained,
           const autograd::LossSum& sum, std::uint64_t bytes) {
  const double loss = sum.sum / sum.count;
  std::optional<double> bits;
  if (bytes > 0) bits = sum.sum / std::numbers::ln2 / static_cast<double>(bytes);
  if (flags.json) {
    Json json = {{"checkpoint", trained.folder.string()},
                 {"tokens", sum.count},
                 {"loss", loss},
                 {"perplexity", std::exp(loss)},
                 {"bytes", bytes}};
    if (!adapter.empty()) json["adapter"] = adapter;
    json["bits_per_byte"] = bits ? Json(*bits) : Json();
    std::cout << json.sorted().dump() << std::endl;
    return;
  }
  std::cout << (adapter.empty() ? "" : adapter + ": ") << trained.folder.string() << "\n"
            << std::fixed << std::setprecision(4) << "  loss           " << loss << " over "
            << static_cast<std::int64_t>(sum.count) << " tokens\n  perplexity     " << std::exp(loss) << "\n";
  if (bits) std::cout << "  bits per byte  " << *bits << " over " << bytes << " bytes\n";
  std::cout << std::flush;
}

void must_be_finite(const recipe::TrainedModel& trained, double sum) {
  if (std::isfinite(sum)) return;
  throw Error(text("eval: the loss of ", trained.folder.string(),
                   " is not finite; the model's weights are damaged, "
                   "or its training diverged: take an older checkpoint"));
}

void evaluate_records(const EvalFlags& flags, const std::string& adapter, const recipe::TrainedModel& trained,
                      autograd::Tape& tape) {
  Meter meter("eval:", {.announcement = text("eval: scoring the records of ", flags.records.files)});
  const auto scored = score_records(trained, flags.records, tape, std::ref(meter));
  must_be_finite(trained, scored.loss.sum);
  print(flags, adapter, trained, scored.loss, 0);
}

/// The model with an adapter, or without any if `adapter` is empty or "base".
void evaluate_one(const EvalFlags& flags, const std::string& content, const std::string& adapter,
                  const recipe::TrainedModel& trained) {
  log_notes(trained.notes, {}, true);
  kernels::Threads threads(flags.threads.count());
  Arena arena;
  autograd::Tape tape(arena, threads, false);
  if (!flags.records.files.empty()) return evaluate_records(flags, adapter, trained, tape);
  const auto length = trained.recipe.size.seq_length;
  const auto stride = flags.stride > 0 ? flags.stride : std::max<std::int64_t>(1, length / 2);
  if (stride > length)
    throw ConfigError(
        text("eval: --stride is ", stride, ", but sequences have ", length, " tokens; at most that many"));
  const auto scored = to_score(flags, content, trained.tokenizer.get());
  const auto sum = [&] {
    Meter meter("eval:", {.announcement = text("eval: scoring ", scored.tokens.size(), " tokens")});
    return training::score(*trained.model, tape, scored.tokens, trained.model->vocabulary(), {length, stride},
                           std::ref(meter));
  }();
  must_be_finite(trained, sum.sum);
  print(flags, adapter, trained, sum, scored.bytes);
}

void evaluate(const EvalFlags& flags, const CommandContext& context) {
  if (!flags.text.empty() + !flags.data.empty() + !flags.records.files.empty() != 1)
    throw ConfigError("eval: give one of --text FILE, --data PREFIX and --records FILES");
  if (!flags.records.media_dir.empty() && flags.records.files.empty())
    throw ConfigError("eval: --media-dir is the folder of the images of --records; give --records FILES");
  if (flags.stride > 0 && !flags.records.files.empty())
    throw ConfigError(text("eval: --stride ", flags.stride,
                           " moves a window over the text of --text or --data, and --records are scored one by one; "
                           "leave --stride out"));
  const auto content = flags.text.empty() ? std::string() : files::read_input(flags.text, "text of --text");
  for_each_adapter(flags.folder, flags.adapters, context.registries,
                   [&](const auto& name, const auto& trained) { evaluate_one(flags, content, name, trained); });
}

}  // namespace

void add_eval_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("eval", "Loss, perplexity and bits per byte of a trained model");
  const auto flags = std::make_shared<EvalFlags>();
  command
      ->add_option("FOLDER", flags->folder,
                   "A checkpoint, a run folder: its newest checkpoint, or a folder of Hugging Face Transformers")
      ->required();
  add_adapter_arguments(*command, flags->adapters);
  command->add_option("--text", flags->text, "A text file");
  command->add_option("--data", flags->data, "PREFIX of a preprocessed .bin and .idx");
  command->add_option("--records", flags->records.files,
                      "Files of conversations with images, joined by commas, as dataset_type mllm reads them; the loss "
                      "is that of their answers");
  command->add_option("--media-dir", flags->records.media_dir,
                      "Folder in which images of --records are looked for first; default: that of the training");
  command
      ->add_option(
          "--stride", flags->stride,
          "Stride of the sliding window, in tokens; 0: half a sequence, so that each token is scored once with at "
          "least that much context")
      ->show_default()
      ->not_negative();
  flags->threads.add_to(*command);
  command->add_flag("--json", flags->json, "One line of JSON");
  add_ignore_key_argument(*command, flags->ignored_keys);
  command->callback([flags, &context] {
    context.ignore_keys(flags->ignored_keys);
    evaluate(*flags, context);
  });
}

}  // namespace tessera::cli
