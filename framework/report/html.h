#pragma once

#include <string>
#include <string_view>

namespace tessera::report {

/// `words` as text or as a quoted attribute value of HTML and SVG. All texts of a page pass through this function, also
/// those that cannot be hostile. Control characters become visible (base/visible_text.h).
std::string escaped(std::string_view words);
/// `json`, a JSON text, as content of a script element: nothing in it ends the element or begins a comment.
std::string in_script(std::string_view json);
/// A number in JSON; null if it is not finite.
std::string json_number(double value);
/// A coordinate of an SVG drawing, with two digits after the point; values outside of +-10000 become these.
std::string coordinate(double value);
/// Width of the view box of every drawing.
inline constexpr double drawing_width = 720;
/// A source expression of a Content-Security-Policy for an element with this content: 'sha256-...'.
std::string policy_hash(std::string_view content);

/// <div class="scroll"> around `content`, a table or a drawing, which a keyboard can scroll. `name`: of the region.
std::string scrolled(std::string_view name, std::string_view content);
/// A <section> with a heading. `id`: of our own. `content`: HTML.
std::string section(std::string_view id, std::string_view heading, std::string_view content);
/// A row of a table: cells of text. `tag`: td or th.
template <class Cells>
std::string table_row(const Cells& cells, std::string_view tag = "td") {
  std::string all = "<tr>";
  for (const auto& cell : cells)
    all += (tag == "th" ? "<th scope=\"col\">" : "<td>") + escaped(cell) + (tag == "th" ? "</th>" : "</td>");
  return all + "</tr>\n";
}

}  // namespace tessera::report
