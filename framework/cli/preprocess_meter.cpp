#include "framework/cli/preprocess_meter.h"

#include <chrono>
#include <cmath>

#include "framework/base/number_text.h"

namespace tessera::cli {
namespace {

constexpr double between_progress_lines = 0.2;  // seconds

double steady_clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string per_second(double count, double seconds, double unit = 1) {
  const auto rate = seconds > 0 ? count / unit / seconds : 0;
  return rate >= 1000 ? std::to_string(std::llround(rate)) : short_number(rate);
}

}  // namespace

PreprocessMeter::PreprocessMeter(Options options) : o_(std::move(options)) {
  if (!o_.clock) o_.clock = steady_clock_seconds;
  begin_ = next_ = o_.clock();
  if (o_.terminal) line_.emplace(o_.console);
}

std::string PreprocessMeter::rates(const preprocessing::PreprocessProgress& now, std::int64_t resumed_documents) const {
  const auto s = seconds();
  const bool all = resumed_documents == 0;  // of a resumed run only what came after the first report is its own
  const auto& from = all ? preprocessing::PreprocessProgress{} : first_;
  return text(per_second(static_cast<double>(now.documents - from.documents), s), " documents/s, ",
              per_second(static_cast<double>(now.bytes - from.bytes), s, 1e6), " MB/s, ",
              per_second(static_cast<double>(now.tokens - from.tokens), s, 1e6), " million tokens/s");
}

void PreprocessMeter::operator()(const preprocessing::PreprocessProgress& now) {
  if (told_ < 0) {
    told_ = o_.interval > 0 ? now.documents / o_.interval * o_.interval : 0;  // of a resumed run not from the beginning
    first_ = now;
  }
  const auto s = seconds();
  for (; o_.interval > 0 && told_ + o_.interval <= now.documents; told_ += o_.interval) {
    log::LineLog(o_.console)
        .write(text("Processed ", told_ + o_.interval, " documents (",
                    per_second(static_cast<double>(now.documents), s), " docs/s, ",
                    per_second(static_cast<double>(now.bytes), s, 1e6), " MB/s).\n"));
  }
  if (line_) draw(now);
}

void PreprocessMeter::draw(const preprocessing::PreprocessProgress& now) {
  const auto at = o_.clock();
  if (at < next_) return;
  next_ = at + between_progress_lines;
  std::string words = "preprocess: ";
  if (now.all_bytes > 0 && now.bytes > 0)
    words += percent_text(static_cast<double>(now.bytes) / static_cast<double>(now.all_bytes)) + ", ";
  words += text(now.documents, " documents, ", short_number(static_cast<double>(now.tokens) * 1e-6),
                " million tokens, ", rates(now, 0));
  if (now.skipped > 0) words += text(", ", now.skipped, " skipped");
  if (now.all_bytes > 0 && now.bytes > first_.bytes && now.bytes <= now.all_bytes)
    words += ", " +
             duration_text((at - begin_) * static_cast<double>(now.all_bytes - now.bytes) /
                           static_cast<double>(now.bytes - first_.bytes + 1)) +
             " left";
  line_->show(words);
}

}  // namespace tessera::cli
