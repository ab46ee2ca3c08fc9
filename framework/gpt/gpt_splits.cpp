#include "framework/gpt/gpt_splits.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include "framework/base/crc32c.h"
#include "framework/base/json.h"
#include "framework/base/start_threads.h"
#include "framework/files/python_json.h"
#include "framework/gpt/blended_dataset.h"
#include "framework/gpt/mock_source.h"
#include "framework/indexed/indexed_dataset.h"

namespace tessera::gpt {
namespace {

Json json_of(const tokenizers::Tokenizer::Identity& identity) {
  Json json = {{"class", identity.class_name}, {"tokenizer_path", Json::array()}};
  for (const auto& path : identity.paths) json["tokenizer_path"].push_back(path ? Json(*path) : Json());
  for (const auto& [key, value] : identity.options) json[key] = value;
  return json;
}

/// Of a recipe's split text: its bounds as Megatron-LM prints them. The sum of weights begins with an integer 0, so the
/// first bound of the first split is `0`; every other bound is a float, also one that is `0.0`.
Json json_of(const std::array<std::optional<SplitBounds>, 3>& matrix) {
  Json json = Json::array();
  for (std::size_t k = 0; k < matrix.size(); ++k) {
    if (matrix[k])
      json.push_back(Json::array({k == 0 ? Json(0) : Json(matrix[k]->first), Json(matrix[k]->last)}));
    else
      json.push_back(nullptr);
  }
  return json;
}

/// `job(i)` for all i below `count`, by some threads. Throws what the first failing i threw.
template <class Job>
void in_parallel(std::size_t count, std::int64_t threads, Job job) {
  std::vector<std::exception_ptr> problems(count);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        job(i);
      } catch (...) {
        problems[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> helpers;
  const auto useful = std::min(static_cast<std::size_t>(threads), count);
  start_threads(
      helpers, std::max<std::size_t>(useful, 1) - 1, "reading of a blend", "dataset_config.num_dataset_builder_threads",
      [&](std::size_t) { work(); }, [&] { next = count; });
  work();
  for (auto& helper : helpers) helper.join();
  for (const auto& problem : problems)
    if (problem) std::rethrow_exception(problem);
}

/// Padding as in GPTDataset: the tokenizer's token if it has one, unless it means something else too.
std::int32_t pad_of(const tokenizers::Tokenizer& tokenizer, bool may_be_ambiguous, const data::TellLine& tell) {
  const auto ids = tokenizer.special_ids();
  if (!ids.pad || *ids.pad < 0) return -1;
  if (may_be_ambiguous || (*ids.pad != tokenizer.eod() && ids.pad != ids.eos)) return *ids.pad;
  if (tell)
    tell(text("the tokenizer's pad token ", *ids.pad,
              " is its end-of-document or end-of-sequence token too; it is not treated as padding, because the loss "
              "would then ignore those tokens "
              "(dataset_config.allow_ambiguous_pad_tokens)"));
  return -1;
}

/// `part_index`: the part of each sample of a blend; `lengths`: the samples that were prepared of each part.
void refuse_missing_samples(const IndexArray& part_index, const std::vector<std::int64_t>& lengths, const Blend& blend,
                            std::size_t split) {
  std::vector<std::int64_t> used(lengths.size());
  const auto parts = part_index.values<std::int16_t>();
  for (const auto part : parts) ++used[static_cast<std::size_t>(part)];
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (used[i] > lengths[i])
      throw ConfigError(text("the ", split_names[split], " blend reads ", used[i], " samples of ", blend.prefixes[i],
                             ", for which ", lengths[i],
                             " were prepared; make dataset_config.mid_level_dataset_surplus larger"));
}

}  // namespace

/// A dataset with the object that its description is the text of.
struct GptSplits::Part {
  std::unique_ptr<GptDataset> dataset;
  Json description;
};

/// What of a source is a split.
struct GptSplits::Cut {
  const char* class_name;
  std::optional<std::string> prefix;  ///< null: mock data
  const std::string* split;           ///< null: the whole source
  SequenceRange range;
};

GptSplits::Options GptSplits::with(Options options, const data::DataParts& parts) {
  options.may_write_caches = parts.may_write_caches;
  options.tell = parts.tell;
  options.seq_length = parts.seq_length;
  options.seed = static_cast<std::uint32_t>(parts.seed);
  options.vocab_size = parts.vocab_size;
  options.eod = parts.eod;
  if (parts.tokenizer) {
    options.tokenizer = parts.tokenizer->identity();
    options.pad = pad_of(*parts.tokenizer, options.documents.allow_ambiguous_pad_tokens, options.tell);
  }
  return options;
}

SplitsWanted GptSplits::wanted(const data::SamplesAsked& asked) {
  SplitsWanted all;
  const std::array<std::int64_t, 3> counts = {asked.train, asked.valid, asked.test};
  for (std::size_t k = 0; k < all.size(); ++k)
    if (counts[k] != 0) all[k] = SplitWanted{counts[k] == data::one_epoch ? std::nullopt : std::optional(counts[k])};
  return all;
}

IndexCache GptSplits::cache(std::filesystem::path folder) const {
  return IndexCache({std::move(folder), options_.no_shared_storage, options_.may_write_caches, options_.tell});
}

GptSplits::Part GptSplits::part(const std::shared_ptr<const indexed::TokenSource>& source, const Cut& cut,
                                std::size_t split, SplitWanted wanted) const {
  const auto& o = options_;
  GptDataset::Request request;
  request.index = {.range = cut.range,
                   .seq_length = o.seq_length,
                   .samples = wanted.samples,
                   .seed = o.seed,
                   .extra_token = o.documents.add_extra_token_to_sequence};
  if (split == 1) request.index.drop_last = o.documents.drop_last_partial_validation_sequence;
  request.vocab_size = o.vocab_size;
  request.eod = o.eod;
  request.pad = o.pad;
  request.options = o.documents;
  Part part;
  part.description = {{"class", cut.class_name},
                      {"dataset_path", cut.prefix ? Json(*cut.prefix) : Json()},
                      {"num_samples", wanted.samples ? Json(*wanted.samples) : Json()},
                      {"index_split", split_names[split]},
                      {"random_seed", o.seed},
                      {"sequence_length", o.seq_length},
                      {"split", cut.split ? Json(*cut.split) : Json()},
                      {"split_matrix", cut.split ? json_of(split_bounds(*cut.split)) : Json()},
                      {"tokenizer", o.tokenizer ? json_of(*o.tokenizer) : Json()}};
  // Megatron-LM's own mock data has no such entry.
  if (!cut.prefix && source->sequences() != MockSource::documents_of_megatron)
    part.description.put("documents", source->sequences());
  request.description = files::python_json(part.description);
  auto folder = o.cache_folder;
  if (folder.empty() && cut.prefix)
    folder = std::filesystem::path(*cut.prefix) / "cache" / (std::string(cut.class_name) + "_indices");
  try {
    const auto plan = plan_gpt_index(*source, request.index);
    IndexCache::Request index{
        .description = request.description,
        .kind = text(cut.class_name, "-", split_names[split]),
        .arrays = {{"document_index", IndexType::int32, {plan.documents}},
                   {"sample_index", plan.start_type, {plan.samples + 1, 2}},
                   {"shuffle_index", plan.shuffle_type, {plan.samples}}},
        .build =
            [&] {
              auto built = build_gpt_index(*source, request.index, plan, static_cast<int>(o.threads));
              std::vector<IndexArray> arrays;
              for (auto* array : {&built.documents, &built.starts, &built.shuffle}) arrays.push_back(std::move(*array));
              source->require_intact();
              return arrays;
            },
        .check =
            [&](const std::vector<IndexArray>& arrays) {
              return wrong_gpt_index(arrays[0], arrays[1], arrays[2], *source, request.index, plan);
            },
        .source_sum = [&] { return lengths_sum(*source, request.index.range); }};
    auto arrays = cache(folder).get(index).arrays;
    source->require_intact();
    part.dataset = std::make_unique<GptDataset>(
        source, std::move(request), GptIndex{std::move(arrays[0]), std::move(arrays[1]), std::move(arrays[2])});
  } catch (const ConfigError& error) {
    throw ConfigError(text(cut.prefix.value_or("mock data"), ": the ", split_names[split], " split (sequences ",
                           cut.range.begin, " to ", cut.range.end, ") ", error.what()));
  }
  return part;
}

std::array<std::optional<GptSplits::Part>, 3> GptSplits::parts_of(const std::string& prefix, const std::string* split,
                                                                  const SplitsWanted& wanted) const {
  const auto source = std::make_shared<indexed::IndexedDataset>(prefix, options_.mmap_bin_files);
  std::array<std::optional<SequenceRange>, 3> ranges;
  ranges.fill(SequenceRange{0, source->sequences()});
  if (split) ranges = cut_split(*split, source->sequences());
  std::array<std::optional<Part>, 3> parts;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (!ranges[k] || !wanted[k]) continue;
    if (k == 2 && split && ranges[k]->size() == 0) continue;
    parts[k] = part(source, {"GPTDataset", prefix, split, *ranges[k]}, k, *wanted[k]);
  }
  return parts;
}

GptSplits::Parts GptSplits::parts_of(const Blend& blend, const std::string* split, const SplitsWanted& wanted) const {
  std::vector<double> weights;
  if (blend.weights) weights = normalized(*blend.weights);
  Parts all(blend.prefixes.size());
  in_parallel(blend.prefixes.size(), options_.threads, [&](std::size_t i) {
    auto of_part = wanted;
    for (std::size_t k = 0; k < of_part.size(); ++k) {
      if (!of_part[k]) continue;
      if (!blend.weights) {
        of_part[k]->samples.reset();
      } else if (!of_part[k]->samples) {
        throw ConfigError(text("the ", split_names[k],
                               " split is a blend with weights, of which there is no epoch; leave the weights out, or "
                               "give the number of samples instead of epochs or full_validation"));
      } else {
        of_part[k]->samples = samples_of_part(*of_part[k]->samples, weights[i], options_.surplus);
      }
    }
    all[i] = parts_of(blend.prefixes[i], split, of_part);
  });
  return all;
}

std::unique_ptr<data::Dataset> GptSplits::blended(std::vector<Part> parts, const Blend& blend, std::size_t split,
                                                  SplitWanted wanted) const {
  std::vector<std::int64_t> lengths;
  for (const auto& part : parts) lengths.push_back(part.dataset->samples());
  const auto all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  std::vector<double> weights;
  std::optional<std::int64_t> size;
  if (blend.weights) {
    weights = normalized(*blend.weights);
    size = 0;
    for (const auto weight : weights) *size += samples_of_part(*wanted.samples, weight);
  } else {
    weights.assign(lengths.begin(), lengths.end());
    if (wanted.samples) size = std::min(*wanted.samples, all);
  }
  Json description = {{"class", "BlendedDataset"},
                      {"datasets", Json::array()},
                      {"split", split_names[split]},
                      {"weights", lengths},
                      {"size", nullptr}};
  for (auto& part : parts) description["datasets"].push_back(std::move(part.description));
  if (size) {
    weights = normalized(weights);
    description["weights"] = weights;
    description["size"] = *size;
  }
  auto words = files::python_json(description);
  const auto samples = size.value_or(all);
  const IndexCache::Request request{
      .description = words,
      .kind = text("BlendedDataset-", split_names[split]),
      .arrays = {{"dataset_index", IndexType::int16, {samples}}, {"dataset_sample_index", IndexType::int64, {samples}}},
      .build =
          [&] {
            auto index = size ? build_blend_index(weights, *size) : build_exhaustive_blend_index(lengths);
            std::vector<IndexArray> arrays;
            arrays.push_back(std::move(index.part));
            arrays.push_back(std::move(index.part_sample));
            return arrays;
          },
      .check = [&](const std::vector<IndexArray>& arrays) { return wrong_blend_index(arrays[0], arrays[1], lengths); },
      .source_sum = [&] { return crc32c(std::as_bytes(std::span(lengths))); }};
  auto result = cache(options_.cache_folder).get(request);
  if (result.built) refuse_missing_samples(result.arrays[0], lengths, blend, split);
  std::vector<std::unique_ptr<GptDataset>> datasets;
  for (auto& part : parts) datasets.push_back(std::move(part.dataset));
  return std::make_unique<BlendedDataset>(
      std::move(datasets), BlendIndex{std::move(result.arrays[0]), std::move(result.arrays[1])}, std::move(words));
}

GptSplits::Splits GptSplits::blended(const Blend& blend, const std::string* split, const SplitsWanted& wanted) const {
  auto all = parts_of(blend, split, wanted);
  Splits out;
  for (std::size_t k = 0; k < out.size(); ++k) {
    std::vector<Part> parts;
    for (auto& of_prefix : all)
      if (of_prefix[k]) parts.push_back(std::move(*of_prefix[k]));
    if (parts.empty()) continue;
    if (parts.size() < all.size())
      throw ConfigError(text("the ", split_names[k], " split of the blend: ", all.size() - parts.size(), " of ",
                             all.size(),
                             " prefixes have too few sequences for a part of it; give it a larger weight "
                             "in split, or 0"));
    out[k] = blended(std::move(parts), blend, k, *wanted[k]);
  }
  return out;
}

GptSplits::Splits GptSplits::of_blend(const Blend& blend, const std::string& split, const SplitsWanted& wanted) const {
  if (!blend.is_plain()) return blended(blend, &split, wanted);
  auto parts = parts_of(blend.prefixes[0], &split, wanted);
  Splits out;
  for (std::size_t k = 0; k < out.size(); ++k)
    if (parts[k]) out[k] = std::move(parts[k]->dataset);
  return out;
}

std::unique_ptr<data::Dataset> GptSplits::of_split(const Blend& blend, std::size_t split, SplitWanted wanted) const {
  SplitsWanted one;
  one[split] = wanted;
  if (blend.prefixes.size() > 1) return std::move(blended(blend, nullptr, one)[split]);
  return std::move(parts_of(blend.prefixes[0], nullptr, one)[split]->dataset);
}

GptSplits::Splits GptSplits::of_mock(const std::shared_ptr<const indexed::TokenSource>& source,
                                     const SplitsWanted& wanted) const {
  const std::string thirds = "1,1,1";
  const auto ranges = cut_split(thirds, source->sequences());
  Splits out;
  for (std::size_t k = 0; k < out.size(); ++k)
    if (wanted[k]) out[k] = part(source, {"MockGPTDataset", {}, &thirds, *ranges[k]}, k, *wanted[k]).dataset;
  return out;
}

std::vector<data::ValidationSet> GptSplits::named(std::vector<std::unique_ptr<data::Dataset>> sets) const {
  const auto& names = options_.validation_set_names;
  if (!names.empty() && names.size() != sets.size())
    throw ConfigError(text("dataset_config.validation_set_names: ", names.size(), " names for ", sets.size(),
                           " validation sets; give one name for each prefix of valid_data_path"));
  std::vector<data::ValidationSet> out;
  for (std::size_t i = 0; i < sets.size(); ++i)
    out.push_back({names.empty() ? std::to_string(i) : names[i], std::move(sets[i])});
  return out;
}

data::DataSplits GptSplits::of_run(const std::optional<Blend>& blend, const std::string& split,
                                   const std::array<std::optional<Blend>, 3>& per_split,
                                   const data::SamplesAsked& asked) const {
  const auto needed = wanted(asked);
  Splits all;
  std::vector<std::unique_ptr<data::Dataset>> sets;  // of validation
  if (blend) {
    all = of_blend(*blend, split, needed);
  } else {
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (!per_split[k] || !needed[k]) continue;
      if (k == 1 && options_.multiple_validation_sets)
        for (const auto& prefix : per_split[k]->prefixes) sets.push_back(of_split({{prefix}, {}}, k, *needed[k]));
      else
        all[k] = of_split(*per_split[k], k, *needed[k]);
    }
  }
  if (options_.multiple_validation_sets && all[1]) sets.push_back(std::move(all[1]));
  return {std::move(all[0]), std::move(all[1]), std::move(all[2]),
          sets.empty() ? std::vector<data::ValidationSet>() : named(std::move(sets))};
}

}  // namespace tessera::gpt
