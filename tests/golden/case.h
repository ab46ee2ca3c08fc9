#pragma once

#include <string>

namespace tessera {

/// What became of one recorded case.
struct CaseResult {
  enum class Verdict { passed, failed, not_supported };
  std::string name;
  Verdict verdict = Verdict::failed;
  std::string summary;  ///< what differs or what is missing; empty when it passed
};

}  // namespace tessera
