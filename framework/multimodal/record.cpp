#include "framework/multimodal/record.h"

#include <array>
#include <utility>

#include "framework/base/error.h"

namespace tessera::multimodal {
namespace {

using instructions::Conversation;
using Role = Conversation::Role;

enum class Marker { image, video, audio };
constexpr std::array<std::pair<std::string_view, Marker>, 3> marker_words = {
    {{"<image>", Marker::image}, {"<video>", Marker::video}, {"<audio>", Marker::audio}}};

struct FoundMarker {
  std::size_t at = std::string::npos, length = 0;
  Marker marker = Marker::image;
};

// The first marker from `from` on.
FoundMarker find_marker(const std::string& words, std::size_t from) {
  FoundMarker first;
  for (const auto& [word, marker] : marker_words)
    if (const auto at = words.find(word, from); at < first.at) first = {at, word.size(), marker};
  return first;
}

const Json& column(const Json& row, const std::string& name) {
  static const Json none;
  const auto* found = row.find(name);
  return found == nullptr ? none : *found;
}

std::string path_of(const Json& value, const std::string& what) {
  if (!value.is_string())
    throw ConfigError(
        text("'", what, "' has ", value.type_name(), " in place of a path; correct or remove the record"));
  return value.string();
}

std::vector<std::string> image_paths(const Json& row, const RecordNames& names) {
  if (!names.images) return {};
  const auto& value = column(row, *names.images);
  if (value.is_null()) return {};
  if (value.is_string()) return {value.string()};
  if (!value.is_array())
    throw ConfigError(text("'", *names.images, "' is ", value.type_name(), "; expected a path or a list of paths"));
  std::vector<std::string> paths;
  for (const auto& one : value) paths.push_back(path_of(one, *names.images));
  return paths;
}

std::vector<Medium> videos_of(const Json& row, const RecordNames& names) {
  if (!names.videos) return {};
  const auto& value = column(row, *names.videos);
  if (value.is_null()) return {};
  if (!value.is_array())
    throw ConfigError(text("'", *names.videos, "' is ", value.type_name(), "; expected a list of videos"));
  std::vector<Medium> videos;
  for (const auto& one : value) {
    if (one.is_string())
      throw ConfigError(text("'", *names.videos, "' names the file ", json_quoted(one.string()),
                             "; files of videos cannot be read, give the list of their frames as image files"));
    if (!one.is_array() || one.empty())
      throw ConfigError(text("'", *names.videos, "' has a video that is not a list of frames; correct the record"));
    videos.push_back({{}, true});
    for (const auto& frame : one) videos.back().frames.push_back(path_of(frame, *names.videos));
  }
  return videos;
}

std::string content_of(const Json& message, const RecordNames& names, std::size_t number) {
  const auto& content = column(message, names.content);
  if (!content.is_string())
    throw ConfigError(text("'", names.content, "' of message ", number, " is ",
                           content.is_null() ? "missing" : content.type_name(), "; expected a text"));
  return content.string();
}

bool is_role(const Json& role, const std::optional<std::string>& name) {
  return name && role.is_string() && role.string() == *name;
}

// The role of message `at` of the conversation, if it may have this one there.
std::optional<Role> role_in_turn(const Json& role, const RecordNames& names, std::size_t at) {
  if (at % 2 == 0) {
    if (is_role(role, names.user)) return Role::user;
    if (is_role(role, names.observation)) return Role::observation;
  } else {
    if (is_role(role, names.assistant)) return Role::assistant;
    if (is_role(role, names.function)) return Role::function;
  }
  return std::nullopt;
}

std::optional<Conversation> conversation_of(const Json& row, const RecordNames& names, std::string& why) {
  const auto& messages = column(row, names.messages);
  if (!messages.is_array())
    throw ConfigError(text("'", names.messages, "' is ", messages.is_null() ? "missing" : messages.type_name(),
                           "; expected a list of messages"));
  Conversation made;
  if (names.system && column(row, *names.system).is_string()) made.system = column(row, *names.system).string();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& message = messages[i];
    if (!message.is_object())
      throw ConfigError(text("message ", i + 1, " is ", message.type_name(), "; expected an object"));
    const auto& role = column(message, names.role);
    if (i == 0 && is_role(role, names.system_role)) {
      made.system = content_of(message, names, 1);
      begin = 1;
      continue;
    }
    const auto known = role_in_turn(role, names, i - begin);
    if (!known) {
      why = text("message ", i + 1, " has the role ", role.dump(), ", which is unknown or not in its turn");
      return std::nullopt;
    }
    made.messages.push_back({*known, content_of(message, names, i + 1)});
  }
  if (made.messages.empty() || made.messages.size() % 2 == 1) {
    why = made.messages.empty() ? "there is no message"
                                : text("there are ", made.messages.size(), " messages, an odd number");
    return std::nullopt;
  }
  return made;
}

void must_be_as_many(std::size_t markers, std::size_t given, const char* marker, const char* what) {
  if (markers != given)
    throw ConfigError(text("the messages have ", markers, " markers ", marker, ", but there are ", given, " ", what,
                           "; correct or remove the record"));
}

std::vector<Medium> in_order_of_markers(const Conversation& conversation, std::vector<std::string> images,
                                        std::vector<Medium> videos) {
  std::vector<Medium> media;
  std::array<std::size_t, 3> count = {};
  for (const auto& message : conversation.messages)
    for (auto found = find_marker(message.content, 0); found.at != std::string::npos;
         found = find_marker(message.content, found.at + found.length)) {
      const auto which = count[static_cast<std::size_t>(found.marker)]++;
      if (found.marker == Marker::image && which < images.size()) media.push_back({{std::move(images[which])}, false});
      if (found.marker == Marker::video && which < videos.size()) media.push_back(std::move(videos[which]));
    }
  must_be_as_many(count[0], images.size(), "<image>", "images");
  must_be_as_many(count[1], videos.size(), "<video>", "videos");
  if (count[2] > 0)
    throw ConfigError("the messages have the marker <audio>, and audio is not supported; remove the record");
  return media;
}

}  // namespace

std::optional<MediaRecord> read_record(const Json& row, const RecordNames& names, std::string& why) {
  if (!row.is_object()) throw ConfigError(text("is ", row.type_name(), "; expected an object, a record"));
  auto conversation = conversation_of(row, names, why);
  if (!conversation) return std::nullopt;
  auto media = in_order_of_markers(*conversation, image_paths(row, names), videos_of(row, names));
  return MediaRecord{std::move(*conversation), std::move(media)};
}

void replace_markers(Conversation& conversation, const std::vector<data::PatchGrid>& grids,
                     const instructions::MultimodalTemplate& tokens, std::int64_t merge) {
  std::size_t next = 0;
  for (auto& message : conversation.messages) {
    std::string replaced;
    std::size_t at = 0;
    for (auto found = find_marker(message.content, 0); found.at != std::string::npos;
         found = find_marker(message.content, at)) {
      replaced.append(message.content, at, found.at - at);
      replaced += tokens.start;
      const auto& placeholder = found.marker == Marker::image ? tokens.image : tokens.video;
      for (auto left = grids.at(next++).tokens(merge); left > 0; --left) replaced += placeholder;
      replaced += tokens.end;
      at = found.at + found.length;
    }
    message.content = replaced.append(message.content, at);
  }
}

}  // namespace tessera::multimodal
