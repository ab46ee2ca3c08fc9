#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/options/mappings.h"
#include "tests/golden/comparison.h"
#include "tests/golden/model_of_case.h"

namespace tessera::golden {

/// One case: its facts, its files and the tables of names.
struct FinetuneCase {
  explicit FinetuneCase(const std::filesystem::path& at)
      : folder(at), facts(json("finetune.json")), base(at / facts.value("base", "")) {}

  nlohmann::json json(const std::string& name) const { return nlohmann::json::parse(read_file(folder / name)); }
  checkpoint::SafetensorsReader tensors(const std::string& name) const {
    return checkpoint::SafetensorsReader(folder / name);
  }
  bool has(const std::string& name) const { return std::filesystem::exists(folder / name); }
  /// The files in the case's folder where it has them, else those of the base.
  CaseFiles files() const {
    CaseFiles files;
    files.hf = has("hf_nf4") ? folder / "hf_nf4" : has("policy") ? folder / "policy" : base / "hf";
    files.batches = (has("batch.safetensors") ? folder : base) / "batch.safetensors";
    files.arguments = base / "arguments.json";
    files.facts = facts;
    if (has("pairs.safetensors")) files.pairs = folder / "pairs.safetensors";
    if (has("adapter")) files.adapter = folder / "adapter";
    files.rounds_base = facts.value("base_dtype", "") == "bfloat16";
    return files;
  }
  /// curve.json or another one, with the case's size of a micro-batch.
  nlohmann::json curve(const std::string& name) const {
    auto steps = json(name);
    if (facts.contains("micro_batch_size")) steps["micro_batch_size"] = facts.at("micro_batch_size");
    return steps;
  }

  std::filesystem::path folder;
  nlohmann::json facts;
  std::filesystem::path base;
  options::Mappings mappings;
};

/// What is compared in one case, by the name under which it is reported. Returns what was compared, in words. Refers to
/// the case, which must outlive it.
using Judgement = std::pair<std::string, std::function<std::string(Comparison&)>>;

/// The first step, all steps and the trained tensors of a case with batches of samples.
std::vector<Judgement> judgements_of_samples(const FinetuneCase& one);
/// The same of a case with pairs of completions: of each recorded loss, and the steps of each recorded curve.
std::vector<Judgement> judgements_of_pairs(const FinetuneCase& one);
/// The adapter, read and written again, and merged into the base.
std::vector<Judgement> judgements_of_adapter(const FinetuneCase& one);

}  // namespace tessera::golden
