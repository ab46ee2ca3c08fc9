#pragma once

#include <set>
#include <span>
#include <string>

namespace tessera::golden {

/// The largest |x|; 0 of none.
double largest(std::span<const double> x);

/// Compares many things, remembers which came nearest to its tolerance and which went beyond.
class Comparison {
 public:
  /// Every |x - expected| is at most `tolerance`.
  void compare(const std::string& name, std::span<const double> x, std::span<const double> expected, double tolerance);
  void compare(const std::string& name, double x, double expected, double tolerance) {
    compare(name, std::span(&x, 1), std::span(&expected, 1), tolerance);
  }
  /// Something is there that should not be, or the reverse.
  void wrong(const std::string& difference);
  /// Something is recorded and was not compared, for the reason in `what`: "gradients (several replicas)". Each is
  /// named once in the summary of a good comparison.
  void not_compared(const std::string& what) { not_compared_.insert(what); }

  bool good() const { return wrongs_ == 0; }
  int compared() const { return compared_; }
  /// "worst grad.lm_head.weight at 0.31 of its tolerance; not compared: ..."; what is wrong where something is.
  std::string summary() const;

 private:
  int compared_ = 0, wrongs_ = 0;
  double worst_share_ = -1;
  std::string worst_, differences_;
  std::set<std::string> not_compared_;
};

}  // namespace tessera::golden
