#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::multimodal {

/// Paths that llava_instruct_2_mllm_demo_format.py of MindSpeed-MM has in its text.
struct LlavaRequest {
  std::string input = "./data/llava_instruct_150k.json";
  std::string images = "./data/COCO2017/train2017";
  std::string output = "./data/mllm_format_llava_instruct_data.json";
};

struct LlavaConverted {
  std::int64_t records = 0;  ///< written
  std::int64_t dropped = 0;  ///< records whose image file does not exist
};

/// Converts a list of LLaVA's records {"image", "conversations": [{"from", "value"}]} to {"images", "messages":
/// [{"role", "content"}]}: the bytes that MindSpeed-MM's script writes, except that a record with an error leaves no
/// file. Holds one record in memory. `tell`, unless empty, gets the stored bytes that are read and their number.
///
/// Throws ConfigError, naming file and line: the output exists, the input is not a list of such records, a role is
/// neither human nor gpt.
LlavaConverted convert_llava(const LlavaRequest& request,
                             const std::function<void(std::int64_t done, std::int64_t all)>& tell = {});

}  // namespace tessera::multimodal
