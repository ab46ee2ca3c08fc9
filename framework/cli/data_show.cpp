#include "framework/cli/data_show.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>

#include "framework/base/checked.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/cli/data_commands.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/multimodal/mllm_dataset.h"
#include "framework/options/limits.h"
#include "framework/recipe/build.h"

namespace tessera::cli {
namespace {

/// One sample and its position in the run.
struct ShownPart {
  std::int64_t number = 0;                 ///< in the run
  std::int64_t index = 0;                  ///< in the dataset
  std::optional<std::int64_t> row;         ///< of a pair: 0 chosen, 1 rejected
  std::optional<std::int64_t> step;        ///< from 1
  std::int64_t micro_batch = 0, rank = 0;  ///< of the step, from 0; rank is the data-parallel one
  Batch batch;
  std::vector<data::TokenOrigin> origins;
  std::optional<std::string> text;  ///< none without a tokenizer

  /// [images and videos, 3]; empty if the samples have no such field.
  std::span<const std::int32_t> grids() const {
    if (batch.fields == nullptr) return {};
    for (const auto& field : *batch.fields)
      if (field.field().name == "grid_thw") return tokens().field<std::int32_t>("grid_thw");
    return {};
  }
  TokenBatch tokens() const { return samples_of<TokenBatch>(batch, row.value_or(0), 1); }
  /// Tokens without padding.
  std::int64_t length() const {
    return origins.empty() ? batch.seq_length : origins.back().first + origins.back().count;
  }
};

class Show {
 public:
  Show(const recipe::Recipe& recipe, const DataShowRequest& request);
  void print(std::ostream& out) const;

 private:
  void find_split();
  void print_row(std::ostream& out, const ShownPart& shown) const;
  void write_pictures(std::int64_t number, std::int64_t index) const;
  recipe::StepSamples samples() const;
  ShownPart read(std::int64_t number, std::int64_t consumed, std::int64_t row) const;

  const recipe::Recipe& recipe_;
  const DataShowRequest& request_;
  parallel::Mesh mesh_;
  std::int64_t replicas_;
  training::RunData data_;
  const data::Dataset* set_ = nullptr;
  const data::Sampler* order_ = nullptr;
};

Show::Show(const recipe::Recipe& recipe, const DataShowRequest& request) : recipe_(recipe), request_(request) {
  const auto ranks = request.ranks > 0 ? request.ranks : parallel::fewest_ranks(recipe.parallel);
  recipe::check_ranks(recipe, ranks);
  mesh_ = recipe::mesh_of(recipe, ranks);
  replicas_ = mesh_.sizes().data;
  if (request.rank && (*request.rank < 0 || *request.rank >= ranks))
    throw ConfigError(text("--rank ", *request.rank, ": a run of ", ranks, " ranks has the ranks 0 to ", ranks - 1,
                           "; give --ranks too if the run has more"));
  data_ = recipe::open_data(recipe, replicas_);
  find_split();
}

void Show::find_split() {
  const auto& s = *data_.splits;
  if (request_.split == "train") set_ = s.train.get(), order_ = data_.train_order.get();
  if (request_.split == "valid") set_ = s.valid.get(), order_ = data_.valid_order.get();
  if (request_.split == "test") set_ = s.test.get(), order_ = data_.test_order.get();
  for (std::size_t i = 0; i < s.valid_sets.size(); ++i)
    if (request_.split == "valid-" + s.valid_sets[i].name)
      set_ = s.valid_sets[i].data.get(), order_ = data_.valid_set_orders[i].get();
  if (!set_ && request_.split.rfind("valid", 0) == 0 && !s.valid_sets.empty()) {
    std::string names;
    for (const auto& set : s.valid_sets) names += (names.empty() ? "valid-" : ", valid-") + set.name;
    throw ConfigError(text("--split ", request_.split, ": the run has several validation sets; give one of ", names));
  }
  if (!set_)
    throw ConfigError(text("--split ", request_.split,
                           ": the run reads no such split; eval_interval and eval_iters must not be 0, and there must "
                           "be data for it by its path or its weight in `split`"));
}

/// What to show.
recipe::StepSamples Show::samples() const {
  recipe::StepSamples out;
  if (!request_.step) {
    out.consumed = request_.from.value_or(0);
    out.samples = -1;
    return out;
  }
  if (request_.split == "train") return recipe::samples_of_step(recipe_, replicas_, data_.iterations, *request_.step);
  const auto full = schedule::BatchPlan(recipe_.ramp, recipe_.batch_sizes(replicas_)).full();
  out.consumed = checked_product({{"--step", *request_.step - 1}, {"samples of a step", full.samples}});
  out.samples = full.samples;
  out.micro_batches = full.micro_batches;
  return out;
}

/// Row `row` of a sample.
ShownPart Show::read(std::int64_t number, std::int64_t consumed, std::int64_t row) const {
  const auto micro = recipe_.batch.batch_size, rows = set_->rows_per_sample();
  ShownPart out{.number = number,
                .index = order_->index(number),
                .row = rows > 1 ? std::optional(row) : std::nullopt,
                .step = request_.step,
                .micro_batch = (number - consumed) / (micro * replicas_),
                .rank = number / micro % replicas_,
                .batch = Batch(set_->fields(), rows, set_->seq_length()),
                .origins = {},
                .text = {}};
  data::fit(*set_, std::span(&out.index, 1), {}, out.batch);
  set_->read(out.index, data::rows_of(*set_, 0, out.batch));
  data::write_ids(number, out.batch);
  out.origins = set_->origins(out.index);
  std::erase_if(out.origins, [row](const data::TokenOrigin& origin) { return origin.row != row; });
  if (data_.tokenizer)
    out.text = data_.tokenizer->decode(out.tokens().tokens.first(static_cast<std::size_t>(out.length())));
  return out;
}

Json json_of(const ShownPart& shown, const std::string& split) {
  Json json;
  json["split"] = split;
  json["sample"] = shown.number;
  json["index"] = shown.index;
  if (shown.step) {
    json["step"] = *shown.step;
    json["micro_batch"] = shown.micro_batch;
  }
  if (shown.row) json["row"] = *shown.row == 0 ? "chosen" : "rejected";
  json["data_parallel_rank"] = shown.rank;
  const auto b = shown.tokens();
  json["tokens"] = b.tokens;
  json["labels"] = b.labels;
  json["loss_mask"] = b.loss_mask;
  json["positions"] = b.positions;
  if (b.position_axes() > 1) json["position_axes"] = b.position_axes();
  if (!shown.grids().empty()) json["grid_thw"] = shown.grids();
  json["document_start"] = b.document_start;
  json["documents"] = Json::array();
  for (const auto& origin : shown.origins)
    json["documents"].push_back({{"first", origin.first},
                                 {"count", origin.count},
                                 {"document", origin.document},
                                 {"sequence", origin.sequence},
                                 {"offset", origin.offset},
                                 {"place", origin.place}});
  json["text"] = shown.text ? Json(*shown.text) : Json();
  return json;
}

/// "0 x 5, 1 x 3": groups equal neighbours.
template <class T>
std::string runs(std::span<T> values) {
  std::string all;
  for (std::size_t i = 0; i < values.size();) {
    std::size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    all += text(i == 0 ? "" : ", ", values[i], " x ", end - i);
    i = end;
  }
  return all;
}

/// "0-7, 0-3": groups ascending neighbours.
std::string ranges(std::span<const std::int32_t> values) {
  std::string all;
  for (std::size_t i = 0; i < values.size();) {
    std::size_t end = i + 1;
    while (end < values.size() && values[end] == values[end - 1] + 1) ++end;
    all += i == 0 ? "" : ", ";
    all += end - i == 1 ? text(values[i]) : text(values[i], "-", values[end - 1]);
    i = end;
  }
  return all;
}

std::string in_quotes(const std::string& words) { return json_quoted(words); }

/// Sixteen ids per line.
void print_ids(std::ostream& out, const char* name, std::span<const std::int32_t> ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i % 16 == 0) out << (i == 0 ? name : "\n              ");
    out << " " << ids[i];
  }
  out << "\n";
}

void print_positions(std::ostream& out, const TokenBatch& b) {
  const auto axes = b.position_axes();
  constexpr std::array names = {"  positions    ", "  rows         ", "  columns      "};
  for (std::int64_t axis = 0; axis < axes; ++axis)
    out << names.at(static_cast<std::size_t>(axis))
        << ranges(b.positions.subspan(static_cast<std::size_t>(axis * b.seq_length),
                                      static_cast<std::size_t>(b.seq_length)))
        << "\n";
}

void print_grids(std::ostream& out, std::span<const std::int32_t> grids) {
  for (std::size_t i = 0; i < grids.size(); i += 3)
    out << (i == 0 ? "  patches      " : ", ") << grids[i] << " x " << grids[i + 1] << " x " << grids[i + 2]
        << (i + 3 == grids.size() ? "\n" : "");
}

void print_sample(std::ostream& out, const ShownPart& shown, const std::string& split) {
  out << split << " sample " << shown.number << ", index " << shown.index << " in the dataset";
  if (shown.step) out << ", step " << *shown.step << ", micro-batch " << shown.micro_batch;
  if (shown.row) out << (*shown.row == 0 ? ", chosen" : ", rejected");
  out << ", data-parallel rank " << shown.rank << "\n";
  for (const auto& origin : shown.origins)
    out << "  tokens " << origin.first << "-" << origin.first + origin.count - 1 << ": " << origin.place << "\n";
  const auto b = shown.tokens();
  print_ids(out, "  tokens      ", b.tokens);
  print_ids(out, "  labels      ", b.labels);
  out << "  loss mask    " << runs(b.loss_mask) << "\n";
  print_positions(out, b);
  print_grids(out, shown.grids());
  out << "  attends from " << runs(b.document_start) << "\n";
  if (shown.text) out << "  text         " << in_quotes(*shown.text) << "\n";
}

void Show::print_row(std::ostream& out, const ShownPart& shown) const {
  if (request_.json)
    out << json_of(shown, request_.split).dump() << "\n";
  else
    print_sample(out, shown, request_.split);
}

void Show::write_pictures(std::int64_t number, std::int64_t index) const {
  const auto* media = dynamic_cast<const multimodal::MllmDataset*>(set_);
  if (!media)
    throw ConfigError("--pictures: the samples have no images; leave it out, or show data of dataset_type mllm");
  std::filesystem::create_directories(request_.pictures);
  const auto files = media->png_files(index);
  for (std::size_t i = 0; i < files.size(); ++i)
    write_file_atomic(std::filesystem::path(request_.pictures) / text("sample_", number, "_", i, ".png"), files[i]);
}

void Show::print(std::ostream& out) const {
  const auto all = samples();
  if (all.skipped) {
    if (request_.json) return;
    out << "step " << *request_.step << " is named by iterations_to_skip: its samples " << all.consumed << " to "
        << all.consumed + all.samples - 1 << " are passed over\n";
    return;
  }
  const auto micro = recipe_.batch.batch_size;
  std::optional<std::int64_t> only;
  if (request_.rank) only = mesh_.place_of(static_cast<int>(*request_.rank)).data;
  auto left = request_.count.value_or(request_.step ? all.samples : 1);
  for (auto number = all.consumed; left > 0 && (all.samples < 0 || number < all.consumed + all.samples); ++number) {
    if (only && number / micro % replicas_ != *only) continue;
    if (!request_.pictures.empty()) write_pictures(number, order_->index(number));
    for (std::int64_t row = 0; row < set_->rows_per_sample(); ++row) print_row(out, read(number, all.consumed, row));
    --left;
  }
}

}  // namespace

void show_data(const recipe::Recipe& recipe, const DataShowRequest& request, std::ostream& out) {
  Show(recipe, request).print(out);
}

void add_data_show(Command& data, CommandContext& context) {
  struct Work {
    RecipeArguments arguments;
    DataShowRequest request;
  };
  auto work = std::make_shared<Work>();
  auto& request = work->request;
  auto* command = data.add_subcommand("show", "Print the samples that a step of a recipe reads");
  command->add_option("RECIPE", work->arguments.file, "The recipe, a .yaml file, or another program's launch script")
      ->required()
      ->type_name("");
  add_set_arguments(*command, work->arguments.sets);
  add_verbose_argument(*command, work->arguments.verbose);
  const auto number = [command](const char* name, std::optional<std::int64_t>& value, std::int64_t lowest,
                                const char* help) {
    return command
        ->add_option(
            name, [&value](const std::string& given) { value = std::stoll(given); }, help)
        ->between(lowest, options::most_samples);
  };
  command
      ->add_option("--split", request.split,
                   "Split of the data: train, valid, test, or valid-NAME of one of several validation sets [train]")
      ->suggest({"train", "valid", "test"});
  const auto* from = number("--from", request.from, 0,
                            "Number of the first sample, counted from 0 over the run and all its ranks [0]");
  number("--step", request.step, 1,
         "Show the samples of this training step, counted from 1 as in the log; of valid and test: of this step of "
         "evaluation, counted over all evaluations")
      ->excludes(from);
  number("--count", request.count, 1, "Maximum number of samples; without it 1, or all of --step");
  number("--rank", request.rank, 0, "Show only what this rank of the run reads");
  command
      ->add_option("--ranks", request.ranks,
                   "Number of ranks of the run; without it as few as the recipe's parallel sizes allow")
      ->positive();
  command->add_option("--pictures", request.pictures,
                      "Folder for the images of dataset_type mllm as the model sees them, as PNG files");
  command->add_flag("--json", request.json, "Print a JSON object for each sample, one a line");
  command->callback([work, &context] { show_data(read_recipe(work->arguments, context), work->request, std::cout); });
}

}  // namespace tessera::cli
