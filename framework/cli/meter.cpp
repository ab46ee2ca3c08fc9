#include "framework/cli/meter.h"

#include <chrono>

#include "framework/base/error.h"
#include "framework/base/number_text.h"

namespace tessera::cli {
namespace {

constexpr double between_lines = 0.2;  // seconds

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Meter::Meter(std::string what, Options options) : what_(std::move(what)), o_(std::move(options)) {
  if (!o_.clock) o_.clock = steady_seconds;
  begin_ = next_ = o_.clock();
  if (o_.terminal) line_.emplace(o_.console);
}

void Meter::operator()(std::int64_t done, std::int64_t all) {
  if (all <= 0 || done <= 0) return;
  const auto now = o_.clock();
  const double share = static_cast<double>(done) / static_cast<double>(all);
  if (!line_) return announce((now - begin_) / share);
  if (now < next_) return;
  next_ = now + between_lines;
  line_->show(
      text(what_, " ", percent_text(share), ", ", duration_text((now - begin_) * (1 - share) / share), " left"));
}

/// `seconds`: estimated duration of the whole work.
void Meter::announce(double seconds) {
  if (announced_ || o_.announcement.empty()) return;
  announced_ = true;
  if (seconds >= long_work_seconds)
    log::LineLog(o_.console).write(text(o_.announcement, ", about ", duration_text(seconds), "\n"));
}

}  // namespace tessera::cli
