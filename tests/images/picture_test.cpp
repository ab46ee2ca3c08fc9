#include "framework/images/picture.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "framework/base/files.h"
#include "framework/images/codecs.h"
#include "tests/images/exif_files.h"

namespace tessera::images {
namespace {

namespace fs = std::filesystem;

const fs::path& picture_folder() {
  static const fs::path folder = TESTS_DATA "/images/files";
  return folder;
}

std::string file_bytes(const std::string& name) { return read_file(picture_folder() / name); }

Bytes bytes_of(const std::string& content) { return std::as_bytes(std::span(content)); }

/// The message of the ConfigError that `call` throws; empty without one.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

std::string refusal_of(const std::string& content) {
  return error_of([&] { decode(bytes_of(content)); });
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

std::string png_chunk(const std::string& name, const std::string& data) {
  return big_endian(static_cast<std::uint32_t>(data.size())) + name + data + big_endian(crc32_of(name + data));
}

/// A PNG file of one pixel whose header names another size, with `chunks` behind the header.
std::string png_of_size(std::uint32_t width, std::uint32_t height, const std::string& chunks = {}) {
  const auto png = file_bytes("size_1x1.png");
  constexpr std::size_t header = 8, behind = header + 25;
  return png.substr(0, header) +
         png_chunk("IHDR", big_endian(width) + big_endian(height) + png.substr(header + 16, 5)) + chunks +
         png.substr(behind);
}

/// zlib data of `repeats` x 258 + 1 letters a: one block of fixed Huffman codes, a match in 13 bits.
std::string many_letters(int repeats) {
  std::string bytes = "\x78\x01";
  unsigned bits = 0, count = 0;
  const auto put = [&](unsigned value, unsigned width) {
    bits |= value << count;
    for (count += width; count >= 8; count -= 8, bits >>= 8) bytes += static_cast<char>(bits);
  };
  put(0b011, 3);       // last block, fixed codes
  put(0b10001001, 8);  // the letter, bits reversed
  for (int i = 0; i < repeats; ++i) {
    put(0b10100011, 8);  // length 258
    put(0, 5);           // distance 1
  }
  put(0, 7);  // end of block
  if (count > 0) put(0, 8 - count);
  const auto size = static_cast<std::uint64_t>(repeats) * 258 + 1;
  const auto low = (1 + 97 * size) % 65521, high = (size + 97 * (size * (size + 1) / 2 % 65521)) % 65521;  // Adler-32
  return bytes + big_endian(static_cast<std::uint32_t>(high << 16 | low));
}

std::int64_t peak_kilobytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Picture, OtherFormatsAreRefusedByName) {
  expect_words(refusal_of(""), {"the file is empty", "a PNG, JPEG or WebP file was expected"});
  expect_words(refusal_of("GIF89a......."), {"a GIF picture", "convert it"});
  expect_words(refusal_of("BM........"), {"a BMP picture"});
  expect_words(refusal_of(std::string("II*\0........", 12)), {"a TIFF picture"});
  expect_words(refusal_of(std::string("\0\0\0\x1C"
                                      "ftypavif",
                                      12)),
               {"an AVIF picture"});
  expect_words(refusal_of(std::string("\0\0\0\x1C"
                                      "ftypisom",
                                      12)),
               {"an MP4 or QuickTime video"});
  expect_words(refusal_of(std::string("RIFF\0\0\0\0AVI ", 12)), {"an AVI video"});
  expect_words(refusal_of("\x1A\x45\xDF\xA3 matroska"), {"a Matroska or WebM video"});
  expect_words(refusal_of("this is no picture"), {"it begins with \"this is no pictu\""});
  expect_words(refusal_of("\x1B[31m\n"), {"\\u001b", "\\n"});
}

TEST(Picture, FilesThatAreNotThereAreRefusedWithTheirPath) {
  expect_words(error_of([] { load_picture("nowhere/a.png"); }), {"nowhere/a.png: there is no such file", "correct"});
  expect_words(error_of([] { load_picture(picture_folder()); }), {picture_folder().string() + ": ", "no regular file"});
  expect_words(error_of([] { load_header(picture_folder() / "broken_text.jpg"); }),
               {"broken_text.jpg: ", "no picture"});
}

TEST(Picture, CompressedTextsTakeNoMemory) {
  const auto text_chunk = png_chunk("zTXt", std::string("name\0\0", 6) + many_letters(30000));
  std::string chunks;
  for (int i = 0; i < 60; ++i) chunks += text_chunk;  // 460 MB when decompressed
  const auto png = png_of_size(1, 1, chunks);
  const auto before = peak_kilobytes();
  EXPECT_EQ(decode(bytes_of(png)).picture.size, (Size{1, 1}));
  EXPECT_LT(peak_kilobytes() - before, 64 * 1024);
}

TEST(Picture, FileAboveItsLimitIsNotRead) {
  const auto path = picture_folder() / "mode_1.png";
  const auto size = static_cast<std::int64_t>(fs::file_size(path));
  EXPECT_EQ(error_of([&] { load_picture(path, {.file_bytes = size}); }), "");
  expect_words(error_of([&] { load_picture(path, {.file_bytes = size - 1}); }), {"mode_1.png: ", "above the limit"});
  expect_words(error_of([&] { load_header(path, {.file_bytes = size - 1}); }), {"mode_1.png: ", "above the limit"});
}

TEST(Picture, LimitIsCheckedFromTheHeaderBeforePixelsAreDecoded) {
  expect_words(refusal_of(png_of_size(60000, 60000)), {"60000x60000", "limit of 178956970", "scale it down"});
  expect_words(refusal_of(png_of_size(0x7FFFFFFF, 0x7FFFFFFF)), {"2147483647x2147483647"});
  for (const auto& entry : list_folder(picture_folder())) {
    const auto bytes = read_file(entry);
    PictureHeader header;
    if (!error_of([&] { header = read_header(bytes_of(bytes)); }).empty()) continue;
    EXPECT_EQ(error_of([&] { read_header(bytes_of(bytes), {header.size.pixels()}); }), "") << entry;
    EXPECT_NE(error_of([&] { read_header(bytes_of(bytes), {header.size.pixels() - 1}); }), "") << entry;
    EXPECT_NE(error_of([&] { decode(bytes_of(bytes), {header.size.pixels() - 1}); }), "") << entry;
  }
}

TEST(Picture, HeaderAloneSaysWhatDecodingSays) {
  for (const auto& entry : list_folder(picture_folder())) {
    const auto bytes = read_file(entry);
    DecodedPicture decoded;
    if (!error_of([&] { decoded = decode(bytes_of(bytes)); }).empty()) continue;
    const auto header = read_header(bytes_of(bytes));
    EXPECT_EQ(header.size, decoded.picture.size) << entry;
    EXPECT_EQ(header.mode, decoded.picture.mode) << entry;
    EXPECT_EQ(header.format, decoded.header.format) << entry;
  }
}

/// The picture is whole: samples for each pixel, a palette where the mode has one.
void expect_sound(const Picture& picture) {
  EXPECT_EQ(picture.samples.size(), static_cast<std::size_t>(picture.size.pixels() * bytes_of_pixel(picture.mode)));
  EXPECT_EQ(picture.palette.size(), picture.mode == Mode::P ? 768U : 0U);
  EXPECT_EQ(to_rgb(picture).samples.size(), static_cast<std::size_t>(picture.size.pixels() * 3));
}

TEST(Picture, FileCutAnywhereIsRefusedOrHasTheSamePixels) {
  for (const auto* name : {"mode_CMYK.jpg", "progressive.jpg", "interlaced.png", "mode_P_transparent_bytes.png",
                           "lossy.webp", "lossless_alpha.webp"}) {
    const auto whole = file_bytes(name);
    const auto pixels = decode(bytes_of(whole)).picture.samples;
    int refused = 0;
    for (std::size_t size = 0; size < whole.size(); size += 1 + size % 97) {
      const auto part = whole.substr(0, size);
      DecodedPicture decoded;
      const auto message = error_of([&] { decoded = decode(bytes_of(part)); });
      refused += message.empty() ? 0 : 1;
      if (message.empty()) {
        EXPECT_EQ(decoded.picture.samples, pixels) << name << " of " << size << " bytes";
      }
    }
    EXPECT_GT(refused, 10) << name;
    expect_words(refusal_of(whole.substr(0, whole.size() / 2)), {"damaged or cut short", "replace it"});
  }
}

/// The number of bytes at the end of a PNG file that decode() does without.
std::size_t spare_bytes(const std::string& whole) {
  std::size_t spare = 0;
  while (spare < whole.size() && refusal_of(whole.substr(0, whole.size() - spare - 1)).empty()) ++spare;
  return spare;
}

TEST(Picture, PngWithAllRowsMayLackItsEndAsInPillow) {
  // Counted with Pillow 11.3, whose decoder stops at the last row too.
  const std::pair<const char*, std::size_t> files[] = {{"size_113x61.png", 21},
                                                       {"interlaced.png", 21},
                                                       {"mode_I16.png", 21},
                                                       {"thin_1x300.png", 20},
                                                       {"video0_frame3.png", 22}};
  for (const auto& [name, spare] : files) {
    const auto whole = file_bytes(name);
    EXPECT_EQ(spare_bytes(whole), spare) << name;
    const auto pixels = decode(bytes_of(whole.substr(0, whole.size() - spare))).picture.samples;
    EXPECT_EQ(pixels, decode(bytes_of(whole)).picture.samples) << name;
    expect_words(refusal_of(whole.substr(0, whole.size() - spare - 1)), {"the file ends before the picture does"});
  }
}

TEST(Picture, ChecksumOfThePixelsOfAPngIsNotReadAsInPillow) {
  const auto whole = file_bytes("size_113x61.png");
  auto damaged = whole;
  constexpr std::size_t end_chunk = 12;
  damaged[damaged.size() - end_chunk - 1] = static_cast<char>(damaged[damaged.size() - end_chunk - 1] ^ 1);
  EXPECT_EQ(decode(bytes_of(damaged)).picture.samples, decode(bytes_of(whole)).picture.samples);
}

TEST(Picture, DamagedFilesAreRefusedOrDecodedSoundly) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  std::vector<std::string> contents;
  for (const auto& entry : list_folder(picture_folder())) contents.push_back(read_file(entry));
  for (int i = 0; i < 600; ++i) {
    auto content = contents[random() % contents.size()];
    const auto changes = 1 + random() % 8;
    for (unsigned k = 0; k < changes && !content.empty(); ++k)
      content[random() % (random() % 2 == 0 ? std::min<std::size_t>(content.size(), 64) : content.size())] =
          static_cast<char>(random());
    if (random() % 4 == 0) content.resize(random() % (content.size() + 1));
    const auto refused = error_of([&] {
      const auto decoded = decode(bytes_of(content), {1 << 20});
      expect_sound(decoded.picture);
      EXPECT_GE(decoded.header.orientation, 1);
      EXPECT_LE(decoded.header.orientation, 8);
    });
    EXPECT_EQ(refused.find('\n'), std::string::npos) << refused;
  }
}

TEST(Picture, ExifOrientationIsReadInBothByteOrders) {
  for (const bool big : {false, true})
    for (std::uint16_t value = 0; value < 12; ++value)
      for (const std::uint16_t type : {3, 4, 2}) {
        const auto exif = exif_with(big, type, value);
        const int expected = type != 2 && value >= 1 && value <= 8 ? value : 1;
        EXPECT_EQ(exif_orientation(bytes_of(exif)), expected) << big << " " << type << " " << value;
        EXPECT_EQ(exif_orientation(bytes_of(std::string("Exif\0\0", 6) + exif)), expected);
        for (std::size_t size = 0; size < 18; ++size)
          EXPECT_EQ(exif_orientation(bytes_of(exif.substr(0, size))), 1) << size;
      }
}

TEST(Picture, OrientationIsKnownFromTheHeader) {
  for (int value = 1; value <= 8; ++value) {
    const auto exif = exif_with(value % 2 == 0, 3, static_cast<std::uint16_t>(value));
    const auto jpeg = file_bytes("mode_L.jpg"), png = file_bytes("size_29x27.png"), webp = file_bytes("lossy.webp");
    const auto size = read_header(bytes_of(webp)).size;
    const auto segment = std::string("Exif\0\0", 6) + exif;
    const std::string marker = {'\xFF', '\xE1', 0, static_cast<char>(segment.size() + 2)};
    const std::vector<std::string> files = {
        jpeg.substr(0, 2) + marker + segment + jpeg.substr(2), png_with_late_exif(png, exif),
        webp_with_exif(webp, static_cast<std::uint32_t>(size.width), static_cast<std::uint32_t>(size.height), exif)};
    for (const auto& file : files) {
      const auto header = read_header(bytes_of(file));
      EXPECT_EQ(header.orientation, value) << describe(header.format);
      EXPECT_EQ(decode(bytes_of(file)).header.orientation, value) << describe(header.format);
      const auto turned = turned_upright(decode(bytes_of(file)).picture, value);
      EXPECT_EQ(header.upright_size(), turned.size) << describe(header.format) << " " << value;
    }
  }
  for (const auto* name : {"exif_6.jpg", "exif_6.png"})
    EXPECT_EQ(read_header(bytes_of(file_bytes(name))).orientation, 6) << name;
}

/// 3 x 2: 1 2 3 over 4 5 6.
Picture six_pixels() { return {Mode::L, {3, 2}, {1, 2, 3, 4, 5, 6}}; }

TEST(Picture, EveryOrientationIsTurnedUpright) {
  using Samples = std::vector<std::uint8_t>;
  const std::vector<std::pair<Size, Samples>> expected = {{{3, 2}, {1, 2, 3, 4, 5, 6}}, {{3, 2}, {1, 2, 3, 4, 5, 6}},
                                                          {{3, 2}, {3, 2, 1, 6, 5, 4}}, {{3, 2}, {6, 5, 4, 3, 2, 1}},
                                                          {{3, 2}, {4, 5, 6, 1, 2, 3}}, {{2, 3}, {1, 4, 2, 5, 3, 6}},
                                                          {{2, 3}, {4, 1, 5, 2, 6, 3}}, {{2, 3}, {6, 3, 5, 2, 4, 1}},
                                                          {{2, 3}, {3, 6, 2, 5, 1, 4}}, {{3, 2}, {1, 2, 3, 4, 5, 6}}};
  for (std::size_t orientation = 0; orientation < expected.size(); ++orientation) {
    const auto turned = turned_upright(six_pixels(), static_cast<int>(orientation));
    EXPECT_EQ(turned.size, expected[orientation].first) << orientation;
    EXPECT_EQ(turned.samples, expected[orientation].second) << orientation;
  }
}

TEST(Picture, AlphaIsDroppedOrLaidOnWhite) {
  const Picture picture = {Mode::RGBA, {3, 1}, {10, 20, 30, 0, 10, 20, 30, 255, 0, 255, 100, 128}};
  EXPECT_EQ(to_rgb(picture).samples, (std::vector<std::uint8_t>{10, 20, 30, 10, 20, 30, 0, 255, 100}));
  EXPECT_EQ(on_white(picture).samples, (std::vector<std::uint8_t>{255, 255, 255, 10, 20, 30, 127, 255, 177}));
  EXPECT_EQ(on_white({Mode::LA, {1, 1}, {7, 0}}).samples, (std::vector<std::uint8_t>{7, 7, 7}));
}

TEST(Picture, WrittenPngIsReadBack) {
  const auto picture = to_rgb(decode(bytes_of(file_bytes("mode_CMYK.jpg"))).picture);
  const auto png = png_of(picture);
  const auto again = decode(bytes_of(png));
  EXPECT_EQ(again.header.format, Format::png);
  EXPECT_EQ(again.picture.mode, Mode::RGB);
  EXPECT_EQ(again.picture.samples, picture.samples);
}

}  // namespace
}  // namespace tessera::images
