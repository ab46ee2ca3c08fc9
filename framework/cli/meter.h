#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

namespace tessera {

/// Tells how far a long work is: on a terminal on a line that is written anew, elsewhere, when asked to, once, as soon
/// as the work is known to take long.
class Meter {
 public:
  struct Options {
    std::string announcement = {};  ///< elsewhere than on a terminal; empty: nothing is told there
    bool terminal = is_terminal();  ///< whether `out` is one
    std::ostream& out = standard_error();
    std::function<double()> clock = {};  ///< seconds since any moment; empty: the real one
  };
  explicit Meter(std::string what) : Meter(std::move(what), Options{}) {}
  Meter(std::string what, Options options);
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  ~Meter();  ///< takes the line away

  /// `done` of `all` units of the work are done.
  void operator()(std::int64_t done, std::int64_t all);
  double seconds() const { return o_.clock() - begin_; }

 private:
  static bool is_terminal();
  static std::ostream& standard_error();
  void announce(double seconds);

  std::string what_;
  Options o_;
  double begin_, next_;
  bool drawn_ = false, announced_ = false;
};

}  // namespace tessera
