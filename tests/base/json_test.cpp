#include "framework/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

namespace tessera {
namespace {

using Reference = nlohmann::ordered_json;  // another implementation

constexpr std::uint64_t seed = 20240611;

std::string written(const Reference& value, int indent = -1) {
  return value.dump(indent, ' ', false, Reference::error_handler_t::replace);
}

/// Random values, each built twice.
class Values {
 public:
  struct Both {
    Json ours;
    Reference theirs;
  };

  Both value(int levels) {
    switch (below(levels > 0 ? 8 : 6)) {
      case 0:
        return {Json(), Reference()};
      case 1:
        return same(below(2) == 1);
      case 2:
        return same(static_cast<std::int64_t>(engine_()) >> below(64));
      case 3:
        return same(static_cast<std::uint64_t>(engine_()) >> below(64));
      case 4:
        return same(real());
      case 5:
        return same(words());
      case 6:
        return list(levels);
      default:
        return map(levels);
    }
  }

  std::string words() {
    constexpr std::string_view pieces[] = {"a",    "\"",   "\\", "\n", "\x01", "\x7f", "\xC3\xA9", "\xF0\x9F\x98\x80",
                                           "\xFF", "\xC3", "/",  "\t", "\x1f", "é",    "\xE2\x96", "a longer piece"};
    std::string all;
    for (auto count = below(5); count > 0; --count) all += pieces[below(std::size(pieces))];
    return all;
  }

  /// Shortest digits are unique where there are few: the other implementation writes more than it needs of some.
  double real() {
    return std::ldexp(static_cast<double>(static_cast<int>(below(4001)) - 2000), 6 - static_cast<int>(below(12)));
  }

  std::size_t below(std::size_t limit) { return engine_() % limit; }

 private:
  template <class T>
  static Both same(const T& value) {
    return {Json(value), Reference(value)};
  }

  Both list(int levels) {
    Both all{Json::array(), Reference::array()};
    for (auto count = below(5); count > 0; --count) {
      auto one = value(levels - 1);
      all.ours.push_back(one.ours);
      all.theirs.push_back(one.theirs);
    }
    return all;
  }

  Both map(int levels) {
    Both all{Json::object(), Reference::object()};
    for (auto count = below(4) == 0 ? below(60) : below(5); count > 0; --count) {
      auto one = value(levels - 1);
      const auto name = "k" + std::to_string(below(40));
      all.ours[name] = one.ours;
      all.theirs[name] = one.theirs;
    }
    return all;
  }

  std::mt19937_64 engine_{seed};
};

std::string mutated(std::string words, Values& values) {
  constexpr std::string_view signs = "{}[]\",:\\u0019.eE+-ntf \n\x80\xC3\xED\xA0\x1f/D8";
  for (auto count = 1 + values.below(3); count > 0; --count) {
    const auto at = values.below(words.size() + 1);
    const auto sign = signs[values.below(signs.size())];
    if (values.below(3) == 0 && at < words.size())
      words[at] = sign;
    else if (values.below(2) == 0 && at < words.size())
      words.erase(at, 1 + values.below(3));
    else
      words.insert(at, 1, sign);
  }
  return words;
}

TEST(Json, WritesTheSameBytesAsAnotherImplementation) {
  Values values;
  for (int i = 0; i < 3000; ++i) {
    const auto both = values.value(4);
    ASSERT_EQ(both.ours.dump(), written(both.theirs)) << "seed " << seed << ", value " << i;
    ASSERT_EQ(both.ours.dump(2), written(both.theirs, 2)) << "seed " << seed << ", value " << i;
    ASSERT_EQ(both.ours.sorted().dump(1),
              nlohmann::json(both.theirs).dump(1, ' ', false, nlohmann::json::error_handler_t::replace))
        << "seed " << seed << ", value " << i;
  }
}

TEST(Json, ReadsTheSameTextsAsAnotherImplementation) {
  Values values;
  int good = 0, bad = 0;
  for (int i = 0; i < 30000; ++i) {
    auto words = written(values.value(3).theirs, values.below(2) == 0 ? -1 : 1);
    if (i % 3 != 0) words = mutated(words, values);
    const auto theirs = Reference::parse(words, nullptr, false);
    const auto ours = parse_json(words);
    ASSERT_EQ(ours.is_discarded(), theirs.is_discarded()) << "seed " << seed << ", text " << i << ": " << words;
    ++(ours.is_discarded() ? bad : good);
    if (ours.is_discarded()) continue;
    ASSERT_EQ(ours.dump(), written(theirs)) << "seed " << seed << ", text " << i << ": " << words;
    ASSERT_TRUE(ours == read_json(ours.sorted().dump())) << ours.dump();
  }
  EXPECT_GT(good, 5000);
  EXPECT_GT(bad, 5000);
}

TEST(Json, ReadsEscapesAndNumbersAsAnotherImplementation) {
  for (const char* words : {"\"\\u00e9\\u0000\\uD83D\\ude00\"",
                            "\"\\ud83d\"",
                            "\"\\ud83dx\"",
                            "\"\\ud83d\\u0041\"",
                            "\"\\ude00\"",
                            "\"\\u12\"",
                            "\"\\u+123\"",
                            "\"\\x\"",
                            "\"\\",
                            "\"",
                            "01",
                            "-",
                            "-0",
                            "-01",
                            "1.",
                            ".5",
                            "1e",
                            "1e+",
                            "1E5",
                            "-0.0",
                            "1e999",
                            "-1e999",
                            "1e-999",
                            "18446744073709551615",
                            "18446744073709551616",
                            "-9223372036854775808",
                            "-9223372036854775809",
                            "1e30",
                            "0x1",
                            "nul",
                            "nulls",
                            "true",
                            "[1,]",
                            "[,1]",
                            "{\"a\":1,}",
                            "{\"a\"}",
                            "{a:1}",
                            "{\"a\":1 \"b\":2}",
                            "",
                            " ",
                            "1 2",
                            "[1]]",
                            "\xEF\xBB\xBF[1]",
                            "\xEF\xBB",
                            "{\"b\":1,\"a\":2,\"b\":3}",
                            "\t[ 1 , { } , [ ] ]\r\n",
                            "+1",
                            "NaN",
                            "Infinity",
                            "1.5e300"}) {
    const auto theirs = Reference::parse(words, nullptr, false);
    const auto ours = parse_json(words);
    EXPECT_EQ(ours.is_discarded(), theirs.is_discarded()) << words;
    if (ours.is_discarded()) continue;
    EXPECT_EQ(ours.dump(), written(theirs)) << words;
    EXPECT_EQ(ours.is_number_integer(), theirs.is_number_integer()) << words;
    EXPECT_EQ(ours.is_number_unsigned(), theirs.is_number_unsigned()) << words;
  }
}

TEST(Json, FloatingPointNumbersAreReadBackExactly) {
  std::mt19937_64 engine(seed);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = engine();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const auto words = Json(value).dump();
    EXPECT_EQ(read_json(words).number(), value) << words;
    EXPECT_EQ(Reference::parse(words).get<double>(), value) << words;
    EXPECT_LE(words.size(), written(Reference(value)).size()) << words;
  }
  for (const double value : {0.0, -0.0, 1.0, 1e14, 1e15, 1e16, 1e-4, 1e-5, 123456.75, 5e-324, 1.7976931348623157e308})
    EXPECT_EQ(Json(value).dump(), written(Reference(value)));
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(real_text(1e15, 16), "1000000000000000.0");
}

TEST(Json, ErrorsNameLineColumnAndWhatWasExpected) {
  const auto complaint = [](std::string_view words) {
    std::string why;
    EXPECT_TRUE(parse_json(words, &why).is_discarded());
    return why;
  };
  EXPECT_EQ(complaint("{\"a\":\n  tru}"), "line 2, column 3: other text stands where a value was expected");
  EXPECT_EQ(complaint("[1, 2"), "line 1, column 6: the text ends where ',' or ']' was expected");
  EXPECT_EQ(complaint("[\"\n\"]"),
            "line 1, column 3: other text stands where an escape instead of a control character was expected");
  EXPECT_EQ(complaint("[1e999]"),
            "line 1, column 2: other text stands where a number within the range of a double was expected");
}

TEST(Json, LevelsAreLimited) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(200)).is_array());
  EXPECT_TRUE(parse_json(nested(201)).is_discarded());
  EXPECT_TRUE(parse_json(nested(1'000'000)).is_discarded());
  EXPECT_TRUE(parse_json("{\"" + std::string(500, '[') + "\\\"{{{\": 1}").is_object());  // in a string they are text
}

TEST(Json, ReadersRefuseOtherTypesAndRanges) {
  const Json json = {
      {"text", "words"}, {"number", -3}, {"large", std::uint64_t{1} << 63U}, {"half", .5}, {"list", {1, 2}}};
  EXPECT_EQ(json["number"].get<int>(), -3);
  EXPECT_EQ(json["list"].get<std::vector<int>>(), (std::vector<int>{1, 2}));
  EXPECT_EQ(json.value("absent", 7), 7);
  EXPECT_EQ(json["large"].get<double>(), 0x1p63);
  for (const auto& wrong : std::vector<std::function<void()>>{
           [&] { json["text"].get<int>(); }, [&] { json["number"].get<unsigned>(); }, [&] { json["number"].string(); },
           [&] { json["large"].get<std::int64_t>(); }, [&] { json["half"].get<int>(); }, [&] { json.at("absent"); },
           [&] { json["list"].at(2); }, [&] { json["list"].items(); }, [&] { json["text"].begin(); },
           [&] { Json::discarded().at("a"); }, [&] { json["text"].get<std::map<std::string, int>>(); }})
    EXPECT_THROW(wrong(), JsonError);
  try {
    json["text"].get<std::int8_t>();
    FAIL();
  } catch (const JsonError& error) {
    EXPECT_STREQ(error.what(), "\"words\" stands where a whole number from -128 to 127 was expected");
  }
}

TEST(Json, NumbersCompareByValueAndObjectsWithoutOrder) {
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_EQ(Json(1), Json(1U));
  EXPECT_NE(Json(-1), Json(~std::uint64_t{0}));
  EXPECT_NE(Json(std::uint64_t{1} << 63U), Json(INT64_MIN));
  EXPECT_EQ(read_json("{\"a\":1,\"b\":[2]}"), read_json("{\"b\":[2.0],\"a\":1}"));
  EXPECT_NE(read_json("{\"a\":1}"), read_json("{\"a\":1,\"b\":null}"));
}

TEST(Json, LargeObjectsKeepTheirOrderWhateverIsErased) {
  Json json = Json::object();
  std::map<std::string, int> known;
  std::mt19937_64 engine(seed);
  for (int i = 0; i < 5000; ++i) {
    const auto name = "name " + std::to_string(engine() % 700);
    if (engine() % 4 == 0) {
      json.erase(name);
      known.erase(name);
    } else {
      json[name] = i;
      known[name] = i;
    }
  }
  EXPECT_EQ(json.size(), known.size());
  for (const auto& [name, value] : known) EXPECT_EQ(json.at(name), value);
  EXPECT_FALSE(json.contains("name 700"));
  EXPECT_EQ(json.sorted().dump(), Json(known).dump());
}

}  // namespace
}  // namespace tessera
