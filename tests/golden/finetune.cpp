#include "tests/golden/finetune.h"

#include <algorithm>
#include <string>

#include "framework/base/error.h"
#include "tests/golden/finetune_case.h"

namespace tessera {
namespace golden {
namespace {

/// How a case is judged; a case of a group that is not here is not supported.
std::vector<Judgement> judgements_of(const FinetuneCase& one) {
  std::vector<Judgement> all;
  const auto add = [&](const std::vector<Judgement>& more) { all.insert(all.end(), more.begin(), more.end()); };
  if (one.has("pairs.safetensors"))
    add(judgements_of_pairs(one));
  else if (one.has("curve.json"))
    add(judgements_of_samples(one));
  if (one.has("adapter")) add(judgements_of_adapter(one));
  return all;
}

CaseResult result_of(const Judgement& judgement) {
  using Verdict = CaseResult::Verdict;
  Comparison comparison;
  const auto failed = [&](std::string message, Verdict verdict) {
    std::replace(message.begin(), message.end(), '\n', ' ');
    return CaseResult{judgement.first, verdict, message};
  };
  try {
    const auto what = judgement.second(comparison);
    const auto verdict = comparison.good() ? Verdict::passed : Verdict::failed;
    return {judgement.first, verdict, text(what, "; ", comparison.summary())};
  } catch (const RefusedOptions& error) {
    return failed(error.what(), Verdict::not_supported);
  } catch (const std::exception& error) {
    return failed(error.what(), Verdict::failed);
  }
}

}  // namespace
}  // namespace golden

bool is_finetune_case(const std::filesystem::path& folder) { return std::filesystem::exists(folder / "finetune.json"); }

std::vector<CaseResult> run_finetune_case(const std::filesystem::path& folder) {
  const golden::FinetuneCase one(folder);
  std::vector<CaseResult> results;
  for (const auto& judgement : golden::judgements_of(one)) results.push_back(golden::result_of(judgement));
  if (results.empty())
    results.push_back({"", CaseResult::Verdict::not_supported,
                       text("no judge for group ", one.facts.at("group").get<std::string>())});
  return results;
}

}  // namespace tessera
