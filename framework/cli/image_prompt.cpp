#include "framework/cli/image_prompt.h"

#include <algorithm>

#include "framework/base/files.h"
#include "framework/base/visible_text.h"
#include "framework/data/visual_positions.h"
#include "framework/images/processor.h"
#include "framework/model/vision_items.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

/// The address that an image part names; empty: none.
std::string address_of(const Json& part) {
  for (const char* key : {"image", "url", "path", "image_url"}) {
    if (!part.contains(key)) continue;
    const auto& value = part[key];
    if (value.is_string()) return value.get<std::string>();
    if (value.is_object() && value.contains("url") && value["url"].is_string()) return value["url"].get<std::string>();
  }
  return "";
}

std::string file_of(std::string address, const fs::path& folder) {
  constexpr std::string_view local = "file://";
  if (address.starts_with(local)) address.erase(0, local.size());
  if (address.find("://") != std::string::npos || address.starts_with("data:"))
    throw ConfigError(text("generate: the image ", shortened(address), " is no file; only files are read"));
  const fs::path file = address;
  return (file.is_absolute() || fs::exists(file) ? file : folder / file).string();
}

bool is_image(const Json& part) {
  const auto type = part.is_object() ? part.value("type", "") : "";
  if (type == "video") throw ConfigError("generate: a message has a video; prompts take images");
  return type == "image" || type == "image_url";
}

/// Calls `task` for each image part of the messages, in reading order.
template <class Task>
void for_each_image(Json& messages, const Task& task) {
  for (auto& message : messages) {
    if (!message.contains("content") || !message["content"].is_array()) continue;
    for (auto& part : message["content"])
      if (is_image(part)) task(part);
  }
}

/// Image parts in front of the last message of the user.
void add_parts(Json& messages, std::size_t count) {
  auto at = messages.size();
  while (at > 0 && messages[at - 1].value("role", "") != "user") --at;
  if (at == 0) throw ConfigError("generate: --image needs a message of the user");
  auto& content = messages[at - 1]["content"];
  auto parts = Json::array();
  for (std::size_t i = 0; i < count; ++i) parts.push_back(Json({{"type", "image"}}));
  if (content.is_string())
    parts.push_back(Json({{"type", "text"}, {"text", content.get<std::string>()}}));
  else
    for (auto& part : content) parts.push_back(part);
  content = std::move(parts);
}

images::ProcessorOptions processor_of(const fs::path& folder, const model::VisionOptions& vision) {
  const auto file = folder / "preprocessor_config.json";
  images::ProcessorOptions options;
  if (fs::exists(file)) try {
      options = images::read_processor_options(read_file(file));
    } catch (const ConfigError& error) {
      throw ConfigError(text(file.string(), ": ", error.what()));
    }
  options.patch_size = static_cast<int>(vision.patch_size);
  options.temporal_patch_size = static_cast<int>(vision.temporal_patch_size);
  options.merge_size = static_cast<int>(vision.spatial_merge_size);
  return options;
}

images::Patches patches_of(const std::string& file, const images::Processor& processor) {
  const auto picture = images::to_rgb(images::load_picture(file).picture);
  try {
    return processor.process({&picture, 1});
  } catch (const ConfigError& error) {
    throw ConfigError(text(file, ": ", error.what()));
  }
}

}  // namespace

ImageConversation with_images(Json messages, const std::vector<std::string>& images, const fs::path& folder) {
  std::size_t open = 0;
  for_each_image(messages, [&](Json& part) { open += address_of(part).empty() ? 1 : 0; });
  if (open == 0 && !images.empty()) add_parts(messages, open = images.size());
  if (open != images.size())
    throw ConfigError(text("generate: the messages have ", open, " images without a file, and --image names ",
                           images.size(), "; give one file for each"));
  ImageConversation out;
  std::size_t next = 0;
  for_each_image(messages, [&](Json& part) {
    const auto address = address_of(part);
    out.images.push_back(address.empty() ? images[next++] : file_of(address, folder));
    part = Json({{"type", "image"}});
  });
  out.messages = std::move(messages);
  return out;
}

ImagePrompt::ImagePrompt(const std::vector<std::int32_t>& tokens, const std::vector<std::string>& files,
                         const model::VisionOptions& vision, const fs::path& folder) {
  const auto places = std::ranges::count_if(tokens, [&](auto token) { return vision.is_placeholder(token); });
  if (places != std::ssize(files))
    throw ConfigError(
        text("generate: the rendered conversation has ", places, " placeholders of images (token ",
             vision.image_token_id, "), but there are ", files.size(), " images; ",
             places == 0 ? "the model's chat template takes none" : "texts must not contain placeholders"));
  const images::Processor processor(processor_of(folder, vision));
  std::vector<images::Patches> all;
  std::vector<data::PatchGrid> grids;
  for (const auto& file : files) {
    all.push_back(patches_of(file, processor));
    grids.push_back({all.back().grid.t, all.back().grid.h, all.back().grid.w});
  }
  std::size_t next = 0;
  for (const auto token : tokens)
    tokens_.insert(
        tokens_.end(),
        static_cast<std::size_t>(vision.is_placeholder(token) ? grids[next++].tokens(vision.spatial_merge_size) : 1),
        token);
  std::int64_t patches = 0;
  for (const auto& grid : grids) patches += grid.patches();
  const BatchFields fields = {{.name = "tokens"},
                              {.name = "positions", .width = 3},
                              {model::pixel_field, DType::float32, FieldExtent::own, vision.patch_width(), patches},
                              {model::grid_field, DType::int32, FieldExtent::own, 3, std::ssize(files)}};
  batch_ = std::make_unique<Batch>(fields, 1, std::ssize(tokens_));
  const auto rows = batch_->own_rows(0);
  rows[2] = patches;
  rows[3] = std::ssize(files);
  batch_->resize(std::ssize(tokens_));
  std::ranges::copy(tokens_, batch_->tokens.begin());
  auto pixels = batch_->field<float>(model::pixel_field);
  auto sizes = batch_->field<std::int32_t>(model::grid_field);
  for (const auto& one : all) {
    std::ranges::copy(one.values, pixels.begin());
    pixels = pixels.subspan(one.values.size());
    std::ranges::copy(std::array{one.grid.t, one.grid.h, one.grid.w}, sizes.begin());
    sizes = sizes.subspan(3);
  }
  shift_ = data::write_visual_positions({.tokens = tokens_, .grids = grids},
                                        {static_cast<std::int32_t>(vision.image_token_id),
                                         static_cast<std::int32_t>(vision.video_token_id), vision.spatial_merge_size},
                                        batch_->positions);
  view_ = batch_->view();
}

}  // namespace tessera::cli
