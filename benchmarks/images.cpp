// How long does a thread take from the bytes of a picture file to its patches? The limits are those of MindSpeed-MM's
// example, the processor's those of Qwen2-VL. benchmarks/images.py runs it beside the processor of Transformers.
//
//   bench_images [--backend pil|torchvision] [--repeat N] FILE...     default: torchvision, 25
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/report.h"
#include "framework/base/files.h"
#include "framework/images/limits.h"
#include "framework/images/processor.h"

namespace tessera {
namespace {

/// Processor time of this process, in milliseconds.
double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

template <class Work>
double median_ms(int repeat, const Work& work) {
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const double begin = processor_ms();
    work();
    times.push_back(processor_ms() - begin);
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  return times[static_cast<std::size_t>(repeat) / 2];
}

void measure(const std::string& file, int repeat, const images::Processor& processor) {
  const auto content = read_file(file);
  const auto bytes = std::as_bytes(std::span(content));
  const images::PixelLimits limits;
  const auto decoded = images::decode(bytes).picture;
  const auto picture = images::limited(decoded, limits);
  std::vector<float> values(processor.process(std::span(&picture, 1)).values.size());
  const auto all = median_ms(repeat, [&] {
    const auto one = images::limited(images::decode(bytes).picture, limits);
    processor.process(std::span(&one, 1), values);
  });
  const auto decoding = median_ms(repeat, [&] { images::decode(bytes); });
  const auto limiting = median_ms(repeat, [&] { images::limited(decoded, limits); });
  const auto resizing = median_ms(repeat, [&] { processor.resized(picture); });
  std::printf("%s: %.3f ms processor time, median of %d; decode %.3f, limits %.3f, resize %.3f, patches %.3f\n",
              std::filesystem::path(file).filename().c_str(), all, repeat, decoding, limiting, resizing,
              all - decoding - limiting - resizing);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::images::ProcessorOptions options;
  options.max_pixels = 12845056;
  int repeat = 25;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--backend" && i + 1 < argc)
      options.backend = std::string(argv[++i]) == "pil" ? tessera::images::Backend::pil : options.backend;
    else if (word == "--repeat" && i + 1 < argc)
      repeat = std::max(1, static_cast<int>(std::strtol(argv[++i], nullptr, 10)));
    else
      files.push_back(word);
  }
  tessera::print_head("How long does a thread take from a picture file to its patches?", 1);
  const tessera::images::Processor processor(options);
  for (const auto& file : files) tessera::measure(file, repeat, processor);
}
