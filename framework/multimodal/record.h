#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/data/visual_positions.h"
#include "framework/instructions/instruction_handlers.h"
#include "framework/instructions/instruction_templates.h"

namespace tessera::multimodal {

/// The names of a record's columns, and the names of roles in its messages: the keys of `attr` in MindSpeed-MM's
/// data.json. Null: there is no such column or role.
struct RecordNames {
  std::string messages = "messages";
  std::optional<std::string> images = "images", videos, system;  ///< columns
  std::string role = "role", content = "content";                ///< keys of a message
  std::optional<std::string> user = "user", assistant = "assistant", observation, function, system_role;
};

/// An image, or a video as the list of its frames.
struct Medium {
  std::vector<std::string> frames;  ///< paths as the record has them; of an image one
  bool is_video = false;
};

/// A record of images, videos and messages.
struct MediaRecord {
  instructions::Conversation conversation;  ///< with markers <image> and <video> in its messages
  std::vector<Medium> media;                ///< in the order of their markers
};

/// Reads a record. Nothing if MindSpeed-MM drops it, because a role is unknown or not in its turn, or a message has no
/// answer; then `why` is the reason. Throws ConfigError, without file and line, for a record at which MindSpeed-MM
/// ends: it has another shape, or its markers are not as many as its images and videos; and for videos in container
/// files.
std::optional<MediaRecord> read_record(const Json& row, const RecordNames& names, std::string& why);

/// Replaces the markers in the messages, each by the tokens of the image or video of its grid: the start token, a
/// placeholder for each merge x merge patches, the end token.
void replace_markers(instructions::Conversation& conversation, const std::vector<data::PatchGrid>& grids,
                     const instructions::MultimodalTemplate& tokens, std::int64_t merge);

}  // namespace tessera::multimodal
