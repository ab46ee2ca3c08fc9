#pragma once

#include <span>
#include <string>

namespace tessera::golden {

/// Compares many things, remembers which came nearest to its tolerance and which went beyond.
class Comparison {
 public:
  /// Every |x - expected| is at most `tolerance`.
  void compare(const std::string& name, std::span<const double> x, std::span<const double> expected, double tolerance);
  void compare(const std::string& name, double x, double expected, double tolerance) {
    compare(name, std::span(&x, 1), std::span(&expected, 1), tolerance);
  }
  /// Something is there that should not be, or the reverse.
  void wrong(const std::string& story);

  bool good() const { return wrongs_ == 0; }
  int compared() const { return compared_; }
  /// "worst grad.lm_head.weight at 0.31 of its tolerance"; what is wrong where something is.
  std::string story() const;

 private:
  int compared_ = 0, wrongs_ = 0;
  double worst_share_ = -1;
  std::string worst_, story_;
};

}  // namespace tessera::golden
