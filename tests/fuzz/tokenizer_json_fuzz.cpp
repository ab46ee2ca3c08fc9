// A tokenizer.json: refused with a ConfigError, or it encodes texts and decodes ids, and never gives a part of a
// character.
#include <cstdlib>

#include "framework/base/error.h"
#include "framework/tokenizers/hugging_face/engine.h"
#include "framework/unicode/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const tokenizers::hugging_face::Engine engine("fuzz", {reinterpret_cast<const char*>(data), size});
    for (const auto* words :
         {"Hello, world's  12345\n\n<s> [MASK]\xE2\x96\x81 \xC3\xA9 e\xCC\x81 \xEF\xAC\x81\xE4\xB8\xAD", "  a",
          "<s></s>", ""}) {
      std::vector<std::int32_t> ids;
      engine.encoder()->encode(words, ids);
      ids.push_back(0);
      ids.push_back(1);
      const auto decoder = engine.decoder();
      for (const auto id : ids) {
        if (unicode::first_not_utf8(decoder->push(id)) != std::string_view::npos) std::abort();
        engine.piece(id);
      }
      if (unicode::first_not_utf8(decoder->finish()) != std::string_view::npos) std::abort();
    }
  } catch (const ConfigError&) {
  }
  return 0;
}
