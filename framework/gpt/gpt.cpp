// Token files in the order of Megatron-LM's GPTDataset.

#include <set>
#include <string>

#include "framework/gpt/gpt_data_options.h"
#include "framework/gpt/gpt_splits.h"
#include "framework/tokenizers/token_origin.h"

namespace tessera::gpt {
namespace {

std::set<std::string> prefixes_of(const GptSources& sources) {
  std::set<std::string> all;
  for (const auto* blend : {&sources.blend, &sources.per_split[0], &sources.per_split[1], &sources.per_split[2]})
    if (*blend) all.insert((*blend)->prefixes.begin(), (*blend)->prefixes.end());
  return all;
}

std::unique_ptr<data::DataSplits> make_gpt(const GptDataOptions& o, data::DataParts parts) {
  const auto sources = gpt_sources(o);
  GptSplits::Options options;
  options.documents = DocumentOptions::of(o);
  options.cache_folder = o.data_cache_path.value_or("");
  options.threads = o.num_dataset_builder_threads;
  options.mmap_bin_files = o.mmap_bin_files;
  options.no_shared_storage = o.no_shared_storage;
  options.surplus = o.mid_level_dataset_surplus;
  options.multiple_validation_sets = o.multiple_validation_sets;
  options.validation_set_names = o.validation_set_names;
  if (parts.warn)
    for (const auto& prefix : prefixes_of(sources))
      if (const auto line = tokenizers::other_origin(prefix, parts.tokenizer); !line.empty()) parts.warn(line);
  const GptSplits splits(GptSplits::with(std::move(options), parts));
  return std::make_unique<data::DataSplits>(
      splits.of_run(sources.blend, sources.split, sources.per_split, parts.asked));
}

}  // namespace

void register_gpt(data::DatasetRegistry& registry) {
  registry.add("gpt", make_gpt, "Megatron-LM's GPTDataset: .bin and .idx files, same sample order.", {"GPTDataset"});
}

}  // namespace tessera::gpt
