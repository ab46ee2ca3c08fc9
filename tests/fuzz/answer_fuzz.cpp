// Files of `tessera generate`: messages with images and videos, and MindSpeed-MM's settings of answers. Refused with a
// ConfigError, or each image or video of the messages has files.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "framework/base/error.h"
#include "framework/cli/chat_prompt.h"
#include "framework/cli/inference_settings.h"
#include "framework/cli/visual_prompt.h"

namespace {

using namespace tessera;

void require(bool holds) {
  if (!holds) std::abort();
}

std::size_t visuals_in(const Json& messages) {
  std::size_t count = 0;
  for (const auto& message : messages)
    if (const auto* content = message.find("content"); content != nullptr && content->is_array())
      for (const auto& part : *content) count += part["type"] == Json("text") ? 0 : 1;
  return count;
}

void read_messages(const std::string& file) {
  for (const auto& images : {std::vector<std::string>(), std::vector<std::string>{"a.png"}}) {
    try {
      const auto read = cli::with_images(cli::conversations_in(file).front(), images, "folder");
      require(read.visuals.size() == visuals_in(read.messages) && read.visuals.size() >= images.size());
      for (const auto& visual : read.visuals) require(!visual.files.empty());
    } catch (const ConfigError&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int memory = memfd_create("answers", 0);
  require(memory >= 0 && ftruncate(memory, 0) == 0 && pwrite(memory, data, size, 0) == static_cast<ssize_t>(size));
  const auto file = "/proc/self/fd/" + std::to_string(memory);
  read_messages(file);
  try {
    const auto settings = cli::read_inference_settings(file);
    require(settings.tokens >= 1);
  } catch (const ConfigError&) {
  }
  return 0;
}
