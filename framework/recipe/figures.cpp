#include "framework/recipe/figures.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "framework/base/checked.h"
#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/checkpoint/find.h"
#include "framework/gpt/data_path.h"
#include "framework/gpt/gpt_data_options.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/recipe/build.h"
#include "framework/recipe/rehearsal.h"
#include "framework/recipe/rules.h"
#include "framework/training/state/model_state.h"
#include "framework/training/state/trained_names.h"

namespace tessera::recipe {
namespace {

/// "decoder.layers.7.mlp.linear_fc1.weight" -> "decoder.layers.*.mlp"; "embedding.word_embeddings.weight" ->
/// "embedding".
std::string part_of(const std::string& parameter) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= parameter.size();) {
    const auto dot = std::min(parameter.find('.', at), parameter.size());
    words.push_back(parameter.substr(at, dot - at));
    at = dot + 1;
  }
  std::string part = words[0];
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const bool number = std::all_of(words[i].begin(), words[i].end(), [](unsigned char c) { return std::isdigit(c); });
    part += '.';
    part += number ? "*" : words[i];
    if (i > 1 && !number) break;
  }
  return part;
}

void count(const Recipe& recipe, model::Model& model, Figures& out) {
  std::int64_t of_experts = 0;
  for (const auto* parameter : model.parameters()) {
    if (parameter->role == ParameterRole::expert_bias) continue;
    if (is_of_expert(parameter->role)) of_experts += parameter->elements();  // less than the sum below
    const auto part = part_of(parameter->name);
    auto& parts = out.parameters_by_part;
    const auto same = std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.first == part; });
    if (same == parts.end())
      parts.emplace_back(part, parameter->elements());
    else
      same->second = checked_sum({{part.c_str(), same->second}, {"more", parameter->elements()}});
    out.parameters = checked_sum({{"parameters", out.parameters}, {part.c_str(), parameter->elements()}});
    out.trained_parameters += training::trained_elements(*parameter);  // no more than the sum above
  }
  out.active_parameters = out.parameters;
  if (const auto experts = recipe.experts(); experts > 0)
    out.active_parameters -= of_experts / experts * (experts - recipe.moe.moe_router_topk);
}

constexpr std::int64_t quickly_ordered = 2000000;  // maximum entries of the document and sample indices

/// What follows the prefixes that dataset_config names, of the token files that a sample is read from.
std::vector<std::string> streams(const Recipe& recipe) {
  if (recipe.dataset.type != "instruction") return {""};
  if (recipe.rows_per_sample() == 1) return {"_packed_input_ids_document"};
  return {"_packed_chosen_input_ids_document", "_packed_rejected_input_ids_document"};
}

/// Whether making the orders of `data` is quick; their length follows from the number of passes over it.
bool quick(const Figures& figures) {
  if (figures.data.empty()) return false;  // not read from files: nothing is known of it
  double entries = static_cast<double>(figures.samples);
  for (const auto& file : figures.data) {
    const double passes =
        static_cast<double>(figures.tokens) / static_cast<double>(std::max<std::int64_t>(file.tokens, 1));
    entries += static_cast<double>(file.documents) * (passes + 1);
  }
  return entries < quickly_ordered;
}

void set_length(const Recipe& recipe, std::int64_t steps, Figures& out) {
  out.steps = steps;
  out.samples = checked_product({{"steps", steps}, {"samples of a step", out.samples_per_step}});
  out.tokens = checked_product(
      {{"samples", out.samples}, {"rows of each", recipe.rows_per_sample()}, {"seq_length", recipe.size.seq_length}});
}

std::int64_t samples(const std::unique_ptr<data::Dataset>& split) { return split ? split->samples() : 0; }

}  // namespace

std::string missing_data(const Recipe& recipe) {
  try {
    if (const auto* data = recipe.dataset.options<gpt::GptDataOptions>()) gpt::must_name_data(*data);
    return "";
  } catch (const ConfigError& error) {
    return text("dataset_config.", error.what());
  }
}

std::string missing_checkpoint(const Recipe& recipe) {
  const auto& o = recipe.training;
  const auto has = [&](const std::string& folder) {
    try {
      return checkpoint::has_checkpoint(folder, recipe.formats);
    } catch (const Error&) {
    } catch (const std::filesystem::filesystem_error&) {
    }
    return true;  // a folder that cannot be read: on the machine of the run it may be
  };
  const auto missing = [](const char* option, const std::string& folder) {
    return text(option, ": there is no checkpoint in ", folder);
  };
  if (o.resume_training != training::Resume::never && has(o.output_dir)) return "";
  const bool loads = o.load_checkpoint && has(*o.load_checkpoint);
  if (!loads && o.pretrained_checkpoint) {
    if (!has(*o.pretrained_checkpoint))
      return missing("training_config.pretrained_checkpoint", *o.pretrained_checkpoint);
  } else if (!loads && o.load_checkpoint && (o.exit_on_missing_checkpoint || !recipe.continues_itself())) {
    return missing("training_config.load_checkpoint", *o.load_checkpoint);
  }
  const auto& reference = recipe.preference.ref_model;
  return reference && !has(*reference) ? missing("preference_config.ref_model", *reference) : "";
}

std::vector<Figures::DataFile> data_files(const Recipe& recipe) {
  const auto* handler = recipe.resolved.at("dataset_config.handler_name");  // of texts
  if (recipe.dataset.type == "sft" || (handler && handler->kind != options::Value::Kind::none)) return {};
  const std::string suffix = "data_path";
  std::vector<Figures::DataFile> all;
  for (const auto& [name, value] : recipe.resolved.at("dataset_config")->fields) {
    gpt::DataPath path;
    if (name.size() < suffix.size() || name.substr(name.size() - suffix.size()) != suffix) continue;
    if (!options::OptionType<gpt::DataPath>::read(value, path)) continue;
    for (const auto& part : path.parts) {
      double weight = 0;
      if (options::OptionType<double>::read(options::Value::of(part, {}), weight)) continue;
      auto& file = all.emplace_back(Figures::DataFile{part, 0, 0});
      for (const auto& stream : streams(recipe)) {
        const indexed::IndexedDataset data(part + stream);
        file.tokens += data.tokens(), file.documents = data.documents();
      }
    }
  }
  return all;
}

DataIdentity identity_of(const Recipe& recipe, const Figures::DataFile& file) {
  DataIdentity out;
  std::int64_t length = 0;
  for (const auto& stream : streams(recipe)) {
    out.data_bytes += static_cast<std::int64_t>(std::filesystem::file_size(file.prefix + stream + ".bin"));
    length += static_cast<std::int64_t>(std::filesystem::file_size(file.prefix + stream + ".idx"));
  }
  if (length > longest_summed_index) return out;
  std::uint32_t sum = 0;
  for (const auto& stream : streams(recipe)) {
    const MappedFile index(file.prefix + stream + ".idx");
    sum = crc32c(index.bytes(), sum);
    index.require_intact();
  }
  out.index_sum = sum;
  return out;
}

double flops_per_token(const Recipe& recipe) {
  const auto tokenizer = recipe.tokenizer.make();
  const auto model = build_model(recipe, tokenizer.get());
  return foreseen_flops(recipe, *model, 1) / static_cast<double>(recipe.rows_per_sample() * recipe.size.seq_length);
}

Figures figures(const Recipe& recipe, std::int64_t ranks) {
  const auto tokenizer = recipe.tokenizer.make();
  const auto model = build_model(recipe, tokenizer.get());
  const auto optimizer = recipe.optimizer.make();
  Figures out;
  count(recipe, *model, out);
  out.vocabulary = vocabulary(recipe, tokenizer.get());
  out.weight_bytes = weight_bytes(*model);
  out.state_bytes = training::bytes_of_state(model->parameters(), *optimizer).all();
  const auto step = schedule::BatchPlan(recipe.ramp, recipe.batch_sizes(ranks)).full();
  out.micro_batches = step.micro_batches;
  out.samples_per_step = step.samples;
  out.tokens_per_step = checked_product({{"samples of a step", out.samples_per_step},
                                         {"rows of each", recipe.rows_per_sample()},
                                         {"seq_length", recipe.size.seq_length}});
  set_length(recipe, recipe.iterations(ranks), out);
  out.flops_per_step = foreseen_flops(recipe, *model, out.samples_per_step);
  out.data = data_files(recipe);
  if (!quick(out)) return out;
  auto parts = data_parts(recipe, tokenizer.get(), out.steps);
  parts.may_write_caches = false;
  const auto data = recipe.dataset.make(std::move(parts));
  out.train_samples = samples(data->train);
  if (recipe.training.epochs) {
    set_length(recipe, epoch_iterations(recipe, out.train_samples, ranks), out);
    require_learning_rate(recipe, out.steps, ranks);
  }
  out.valid_samples = samples(data->valid);
  for (const auto& set : data->valid_sets) out.valid_samples += samples(set.data);
  out.test_samples = samples(data->test);
  return out;
}

}  // namespace tessera::recipe
