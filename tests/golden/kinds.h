#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/golden/case.h"
#include "tests/golden/programs.h"

namespace tessera::golden {

/// One kind of recorded cases: which folders it knows, and how they are judged. To add a kind, add one to case_kinds().
struct CaseKind {
  std::string name;
  /// Whether `folder` is one of this kind. Folders below a recognised one are its own business.
  std::function<bool(const std::filesystem::path& folder)> recognises;
  /// Judge all cases of the folder. Names are relative to it; empty: the folder is the case.
  std::function<std::vector<CaseResult>(const std::filesystem::path& folder)> run;
  /// Lines that sum up the folder's cases; may be empty.
  std::function<std::vector<std::string>(const std::vector<CaseResult>&)> sum_up = {};
};

/// All kinds there are; runs of several processes are started with `programs`. The first that recognises a folder
/// judges it.
std::vector<CaseKind> case_kinds(const Programs& programs = Programs::built());

/// Judge every case in `root` and below, telling each as soon as it is known, and what sums up a folder. A folder with
/// records (.json, .jsonl, .safetensors) that no kind recognises is one case that is not supported. Names begin with
/// the folder, relative to `root`.
std::vector<CaseResult> run_cases(const std::filesystem::path& root, const std::vector<CaseKind>& kinds,
                                  const std::function<void(const CaseResult&)>& tell = {},
                                  const std::function<void(const std::string& line)>& tell_sum = {});

/// "passed models/gpt2: 46 tensors, 20 steps"
std::string line_of(const CaseResult& result);
/// "12 passed, 0 failed, 3 not supported"
std::string summary_of(const std::vector<CaseResult>& results);

}  // namespace tessera::golden
