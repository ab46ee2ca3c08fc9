#include "framework/cli/visual_prompt.h"

#include <algorithm>
#include <array>

#include "framework/base/files.h"
#include "framework/base/visible_text.h"
#include "framework/data/visual_positions.h"
#include "framework/images/inference.h"
#include "framework/images/picture_path.h"
#include "framework/model/vision_items.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

/// The address that an image part names; empty: none.
std::string address_of(const Json& part) {
  for (const char* key : {"image", "url", "path", "image_url"}) {
    if (!part.contains(key)) continue;
    const auto& value = part[key];
    if (value.is_null()) continue;
    if (value.is_string()) return value.get<std::string>();
    if (value.is_object() && value.contains("url") && value["url"].is_string()) return value["url"].get<std::string>();
    throw ConfigError(text("generate: the image ", shortened(part.dump()), " has ", value.type_name(), " as \"", key,
                           "\"; expected the path of a file"));
  }
  return "";
}

std::string file_of(const std::string& address, const fs::path& folder) {
  const fs::path file = images::path_of(address);
  std::error_code unusable;  // a name that is longer than any file's: reading it fails
  return (file.is_absolute() || fs::exists(file, unusable) ? file : folder / file).string();
}

bool has_type(const Json& part, std::string_view type) {
  const auto* given = part.find("type");
  return given != nullptr && given->is_string() && given->string() == type;
}
bool is_image(const Json& part) { return has_type(part, "image") || has_type(part, "image_url"); }
bool is_video(const Json& part) { return has_type(part, "video"); }

/// Nothing of a message is left out without a word.
void check_part(const Json& part) {
  if (!part.is_object() || !(is_image(part) || is_video(part) || has_type(part, "text")))
    throw ConfigError(text("generate: a message has the part ", shortened(part.dump()),
                           "; text, images and videos as lists of frames are supported"));
  for (const char* key : {"min_pixels", "max_pixels", "resized_height", "resized_width", "nframes", "fps"})
    if (part.contains(key) && !(is_video(part) && std::string_view(key) == "fps"))
      throw ConfigError(text("generate: a part of a message has ", key,
                             ", which is not supported; the limits are those of the model's image processor"));
}

/// The frames of a video.
Visual video_of(const Json& part, const fs::path& folder) {
  Visual out{.is_video = true, .files = {}};
  if (part.contains("video") && part["video"].is_array())
    for (const auto& frame : part["video"])
      if (frame.is_string()) out.files.push_back(file_of(frame.get<std::string>(), folder));
  if (out.files.empty() || out.files.size() != part["video"].size())
    throw ConfigError(
        text("generate: the video ", shortened(part.dump()),
             " is no list of frames, {\"type\": \"video\", \"video\": [\"1.png\", \"2.png\"]}; files of videos "
             "are not read"));
  if (const auto* fps = part.find("fps")) {
    constexpr double least = 1e-3;
    if (!fps->is_number() || !(fps->get<double>() >= least))
      throw ConfigError(text("generate: \"fps\" of a video is ", shortened(fps->dump()),
                             "; expected its frames in a second, at least ", least));
    out.fps = fps->get<double>();
  }
  return out;
}

/// Calls `task` for each image and video of the messages, in reading order.
template <class Task>
void for_each_visual(Json& messages, const Task& task) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].contains("content") || !messages[i]["content"].is_array()) continue;
    for (auto& part : messages[i]["content"]) {
      check_part(part);
      if (is_image(part) || is_video(part)) task(part);
    }
  }
}

/// Image parts in front of the last message of the user.
void add_parts(Json& messages, std::size_t count) {
  auto at = messages.size();
  while (at > 0 && messages[at - 1].value("role", "") != "user") --at;
  if (at == 0) throw ConfigError("generate: --image needs a message of the user");
  auto& content = messages[at - 1]["content"];
  if (!content.is_string() && !content.is_array())
    throw ConfigError(text("generate: message ", at, ", which gets the images, has the content ",
                           shortened(content.dump()), "; expected a text or a list of parts"));
  auto parts = Json::array();
  for (std::size_t i = 0; i < count; ++i) parts.push_back(Json({{"type", "image"}}));
  if (content.is_string())
    parts.push_back(Json({{"type", "text"}, {"text", content.get<std::string>()}}));
  else
    for (auto& part : content) parts.push_back(part);
  content = std::move(parts);
}

/// Distance of two time steps in positions.
double time_step_of(const Visual& visual, const model::VisionOptions& vision) {
  if (!visual.is_video) return 1;
  const auto& rate = vision.tokens_per_second;
  if (rate && !visual.fps)
    throw ConfigError(text("generate: the model places the frames of a video by their times, and the video of ",
                           visual.files.front(),
                           " has no \"fps\"; give its frames in a second, {\"type\": \"video\", "
                           "\"video\": [...], \"fps\": 2}"));
  if (!rate && visual.fps)
    throw ConfigError(text("generate: the video of ", visual.files.front(),
                           " has \"fps\", but the model does not place frames by their times; leave \"fps\" out"));
  return rate ? *rate * static_cast<double>(vision.temporal_patch_size) / *visual.fps : 1;
}

/// The grid with its time steps. Positions must be numbers of 32 bits.
data::PatchGrid in_time(const images::Grid& grid, const Visual& visual, const model::VisionOptions& vision) {
  const data::PatchGrid made{grid.t, grid.h, grid.w, time_step_of(visual, vision)};
  constexpr double most = 1 << 30;
  if (const double last = (made.t - 1) * made.time_step; !(last <= most))
    throw ConfigError(text("generate: the video of ", images::shown_path(visual.files.front()), " has \"fps\" ",
                           visual.fps.value_or(0), ", so its last frames have the position ", last,
                           ", which no model has; give its true number of frames in a second"));
  return made;
}

images::Picture loaded(const std::string& file, PictureLoading loading) {
  auto [header, picture] = images::load_picture(file);
  if (loading == PictureLoading::qwen_vl_utils) return images::fetched(std::move(picture));
  if (loading == PictureLoading::load_image) picture = images::turned_upright(std::move(picture), header.orientation);
  return images::to_rgb(std::move(picture));
}

images::Patches patches_of(const Visual& visual, const images::Processor& processor, PictureLoading loading) {
  try {
    std::vector<images::Picture> frames;
    for (const auto& file : visual.files) frames.push_back(loaded(file, loading));
    return processor.process(frames);
  } catch (const ConfigError& error) {
    const std::string words = error.what(), shown = images::shown_path(visual.files.front());
    throw ConfigError(words.starts_with(shown) ? words : text(shown, ": ", words));
  }
}

}  // namespace

void check_placeholders(const std::vector<std::int32_t>& tokens, const std::vector<Visual>& visuals,
                        const model::VisionOptions& vision) {
  std::size_t found = 0;
  for (const auto token : tokens) {
    if (!vision.is_placeholder(token)) continue;
    if (found < visuals.size() && visuals[found].is_video != (token == vision.video_token_id))
      throw ConfigError(text("generate: placeholder ", found + 1, " of the rendered conversation is of ",
                             visuals[found].is_video ? "an image, not of a video" : "a video, not of an image"));
    ++found;
  }
  if (found != visuals.size())
    throw ConfigError(
        text("generate: the rendered conversation has ", found, " placeholders of images and videos (tokens ",
             vision.image_token_id, " and ", vision.video_token_id, "), but there are ", visuals.size(),
             found == 0 ? "; the model's chat template takes none" : "; texts must not contain placeholders"));
}

VisualConversation with_images(Json messages, const std::vector<std::string>& images, const fs::path& folder) {
  std::size_t open = 0;
  for_each_visual(messages, [&](Json& part) { open += is_image(part) && address_of(part).empty() ? 1 : 0; });
  if (open == 0 && !images.empty()) add_parts(messages, open = images.size());
  if (open != images.size())
    throw ConfigError(text("generate: the messages have ", open, " images without a file, and --image names ",
                           images.size(), "; give one file for each"));
  VisualConversation out;
  std::size_t next = 0;
  for_each_visual(messages, [&](Json& part) {
    if (is_video(part)) {
      out.visuals.push_back(video_of(part, folder));
      part = Json({{"type", "video"}});
      return;
    }
    const auto address = address_of(part);
    out.visuals.push_back({false, {address.empty() ? images::path_of(images[next++]) : file_of(address, folder)}});
    part = Json({{"type", "image"}});
  });
  out.messages = std::move(messages);
  return out;
}

VisualPrompt::VisualPrompt(const std::vector<std::int32_t>& tokens, const std::vector<Visual>& visuals,
                           const model::VisionOptions& vision, const PictureSettings& settings) {
  check_placeholders(tokens, visuals, vision);
  const images::Processor of_images(settings.processor);
  auto options = settings.processor;
  options.backend = settings.of_videos;
  const images::Processor of_videos(options);
  std::vector<images::Patches> all;
  std::vector<data::PatchGrid> grids;
  for (const auto& visual : visuals) {
    all.push_back(patches_of(visual, visual.is_video ? of_videos : of_images, settings.loading));
    grids.push_back(in_time(all.back().grid, visual, vision));
  }
  std::vector<std::int32_t> ids;
  std::int64_t patches = 0;
  std::size_t next = 0;
  for (const auto token : tokens)
    ids.insert(
        ids.end(),
        static_cast<std::size_t>(vision.is_placeholder(token) ? grids[next++].tokens(vision.spatial_merge_size) : 1),
        token);
  for (const auto& grid : grids) patches += grid.patches();
  const auto length = std::ssize(ids), items = std::ssize(visuals);
  const BatchFields fields = {{.name = "tokens"},
                              {.name = "positions", .width = 3},
                              {model::pixel_field, DType::float32, FieldExtent::own, vision.patch_width(), patches},
                              {model::grid_field, DType::int32, FieldExtent::own, 3, items}};
  batch_ = std::make_unique<Batch>(fields, 1, length);
  batch_->own_rows(0)[2] = patches;
  batch_->own_rows(0)[3] = items;
  batch_->resize(length);
  std::ranges::copy(ids, batch_->tokens.begin());
  auto pixels = batch_->field<float>(model::pixel_field);
  auto sizes = batch_->field<std::int32_t>(model::grid_field);
  for (const auto& one : all) {
    std::ranges::copy(one.values, pixels.begin());
    pixels = pixels.subspan(one.values.size());
    std::ranges::copy(std::array{one.grid.t, one.grid.h, one.grid.w}, sizes.begin());
    sizes = sizes.subspan(3);
  }
  shift_ = data::write_visual_positions({.tokens = ids, .grids = grids},
                                        {static_cast<std::int32_t>(vision.image_token_id),
                                         static_cast<std::int32_t>(vision.video_token_id), vision.spatial_merge_size},
                                        batch_->positions);
  view_ = batch_->view();
}

}  // namespace tessera::cli
