#include "framework/base/json.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(ParseJson, TakesWhatIsNestedReasonablyAndDiscardsTheRest) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(200)).is_array());
  EXPECT_TRUE(parse_json(nested(201)).is_discarded());
  EXPECT_TRUE(parse_json(nested(1'000'000)).is_discarded());
  EXPECT_TRUE(parse_json("{\"a\": ").is_discarded());
  EXPECT_TRUE(parse_json("{\"" + std::string(500, '[') + "\\\"{{{\": 1}").is_object());  // in a string they are text
  EXPECT_TRUE(parse_json<nlohmann::ordered_json>("{\"b\": 1, \"a\": 2}").is_object());
}

}  // namespace
}  // namespace tessera
