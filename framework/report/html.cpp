#include "framework/report/html.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "framework/base/sha256.h"
#include "framework/base/visible_text.h"

namespace tessera::report {
namespace {

/// RFC 4648.
std::string base64(std::string_view bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string all;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    unsigned value = 0;
    for (std::size_t i = at; i < at + 3; ++i)
      value = value << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) all += at + i <= bytes.size() ? letters[value >> (18 - 6 * i) & 63U] : '=';
  }
  return all;
}

}  // namespace

std::string escaped(std::string_view words) {
  std::string all;
  for (const char sign : is_plain_text(words) ? std::string(words) : visible(words)) switch (sign) {
      case '&':
        all += "&amp;";
        break;
      case '<':
        all += "&lt;";
        break;
      case '>':
        all += "&gt;";
        break;
      case '"':
        all += "&quot;";
        break;
      case '\'':
        all += "&#39;";
        break;
      default:
        all += sign;
    }
  return all;
}

std::string in_script(std::string_view json) {
  std::string all;
  all.reserve(json.size());
  for (const char sign : json) switch (sign) {
      case '&':
        all += "\\u0026";
        break;
      case '<':
        all += "\\u003c";
        break;
      case '>':
        all += "\\u003e";
        break;
      default:
        all += sign;
    }
  return all;
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

std::string coordinate(double value) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.2f", std::isfinite(value) ? std::clamp(value, -1e4, 1e4) : 0.0);
  return digits.data();
}

std::string policy_hash(std::string_view content) {
  std::string bytes;
  const auto hex = sha256(content);
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    bytes += static_cast<char>(byte);
  }
  return "'sha256-" + base64(bytes) + "'";
}

std::string scrolled(std::string_view name, std::string_view content) {
  return "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"" + escaped(name) + "\">" +
         std::string(content) + "</div>\n";
}

std::string section(std::string_view id, std::string_view heading, std::string_view content) {
  return "<section id=\"" + escaped(id) + "\"><h2>" + escaped(heading) + "</h2>\n" + std::string(content) +
         "</section>\n";
}

}  // namespace tessera::report
