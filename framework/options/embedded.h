#pragma once

#include <span>
#include <string_view>

namespace tessera {

/// One file of mappings/ as it was when the program was built.
struct EmbeddedFile {
  std::string_view name;  ///< below mappings/: "weights/gpt2.yaml"
  std::string_view text;
};

/// All of them. Defined in a source that framework/options/embed.cmake writes into the build folder.
std::span<const EmbeddedFile> embedded_mappings();

}  // namespace tessera
