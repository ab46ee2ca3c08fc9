#pragma once

#include <span>
#include <string_view>

namespace tessera::options {

/// One file of mappings/ or configs/ as it was when the program was built.
struct EmbeddedFile {
  std::string_view name;  ///< below its folder: "weights/gpt2.yaml"
  std::string_view text;
};

/// All of them. Defined in sources that framework/options/embed.cmake writes into the build folder.
std::span<const EmbeddedFile> embedded_mappings();
std::span<const EmbeddedFile> embedded_configs();

}  // namespace tessera::options
