#include "framework/kernels/sample_noise.h"

#include "framework/base/error.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/float_window.h"
#include "framework/kernels/keyed_ranges.h"
#include "framework/kernels/philox.h"

namespace tessera::kernels {
namespace {

constexpr std::size_t values_of_tile = 4 * float_window;

std::size_t elements_per_sample(const char* who, const SampleNoise& noise, std::size_t elements) {
  const auto samples = noise.sample_ids.size();
  if (samples == 0 || elements % samples != 0)
    throw ShapeError(text(who, ": ", elements, " values are no whole number for each of ", samples, " samples"));
  return elements / samples;
}

}  // namespace

void jitter(Threads& threads, const SampleNoise& noise, double eps, const Elements& x, const MutableElements& y,
            bool add) {
  expect_values("jitter", "y", y.size(), static_cast<std::int64_t>(x.size()));
  const auto per_sample = elements_per_sample("jitter", noise, x.size());
  const auto least = static_cast<float>(1 - eps), step = static_cast<float>(2 * eps * 0x1p-32);
  threads.parallel_for(x.size(), values_of_tile, [&](std::size_t begin, std::size_t end) {
    FloatReader in(x);
    FloatWriter out(y);
    std::uint32_t words[float_window + 4];  // drawn in blocks of four, so the first may belong to earlier elements
    for_keyed_ranges(noise, per_sample, begin, end, float_window,
                     [&](std::uint64_t id, std::uint64_t element, std::size_t first, std::size_t size) {
                       const auto skip = element % 4;
                       philox_words(noise.key, id, element / 4, (skip + size + 3) / 4, words);
                       const float* from = in.at(first, size);
                       float* to = out.at(first, size, add);
                       for (std::size_t i = 0; i < size; ++i) {
                         const float product = from[i] * (least + step * static_cast<float>(words[skip + i]));
                         to[i] = add ? to[i] + product : product;
                       }
                       out.store();
                     });
  });
}

void draw_normal(Threads& threads, const SampleNoise& noise, std::span<float> y) {
  const auto per_sample = elements_per_sample("draw_normal", noise, y.size());
  threads.parallel_for(y.size(), values_of_tile / 4, [&](std::size_t begin, std::size_t end) {
    for_keyed_ranges(noise, per_sample, begin, end, end - begin,
                     [&](std::uint64_t id, std::uint64_t element, std::size_t first, std::size_t size) {
                       for (std::size_t i = 0; i < size; ++i)
                         y[first + i] = static_cast<float>(noise.key.normal(id, element + i));
                     });
  });
}

}  // namespace tessera::kernels
