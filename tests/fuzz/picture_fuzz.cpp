// A PNG, JPEG or WebP file: refused with a ConfigError, or decoded into a whole picture of the size that its header
// names, which becomes RGB, turns upright and is limited. A picture never takes more than the stated limit.
#include <cstdlib>
#include <span>

#include "framework/base/error.h"
#include "framework/images/limits.h"
#include "framework/images/picture.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::images;
  const auto bytes = std::as_bytes(std::span(data, size));
  const DecodeLimits limits = {.pixels = 1 << 18};
  try {
    const auto header = read_header(bytes, limits);
    require(header.size.pixels() > 0 && header.size.pixels() <= limits.pixels);
    const auto [decoded, picture] = decode(bytes, limits);
    require(decoded.size == header.size && picture.size == header.size && picture.mode == header.mode);
    require(picture.samples.size() == static_cast<std::size_t>(picture.size.pixels() * bytes_of_pixel(picture.mode)));
    require(decoded.orientation >= 1 && decoded.orientation <= 8);
    require(turned_upright(to_rgb(picture), decoded.orientation).size.pixels() == picture.size.pixels());
    require(limited(picture, {.max_pixels = 4096}).mode == Mode::RGB);
  } catch (const tessera::ConfigError&) {
  }
  return 0;
}
