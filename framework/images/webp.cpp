#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "framework/images/codecs.h"

namespace tessera::images {
namespace {

struct DemuxerEnd {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, DemuxerEnd>;

struct AnimationEnd {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};

WebPData webp_data(Bytes bytes) { return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}; }

int webp_orientation(WebPDemuxer* demuxer) {
  WebPChunkIterator chunk = {};
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) == 0) return 1;
  const int orientation = exif_orientation({reinterpret_cast<const std::byte*>(chunk.chunk.bytes), chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

Picture decode_still(Bytes bytes, const PictureHeader& header) {
  auto picture = blank(header.mode, header.size);
  const auto data = webp_data(bytes);
  const auto* done = header.mode == Mode::RGBA
                         ? WebPDecodeRGBAInto(data.bytes, data.size, picture.samples.data(), picture.samples.size(),
                                              static_cast<int>(picture.row(0).size()))
                         : WebPDecodeRGBInto(data.bytes, data.size, picture.samples.data(), picture.samples.size(),
                                             static_cast<int>(picture.row(0).size()));
  if (!done) refuse_damaged(Format::webp, "its pixels cannot be decoded");
  return picture;
}

/// The first frame on its canvas, transparent around it.
Picture decode_first_frame(Bytes bytes, const PictureHeader& header) {
  const auto data = webp_data(bytes);
  WebPAnimDecoderOptions options;
  std::uint8_t* canvas = nullptr;
  int time = 0;
  if (WebPAnimDecoderOptionsInit(&options) == 0) refuse_damaged(Format::webp, "libwebpdemux is of another version");
  options.color_mode = MODE_RGBA;
  const std::unique_ptr<WebPAnimDecoder, AnimationEnd> decoder(WebPAnimDecoderNew(&data, &options));
  if (!decoder || WebPAnimDecoderGetNext(decoder.get(), &canvas, &time) == 0)
    refuse_damaged(Format::webp, "its first frame cannot be decoded");
  auto picture = blank(Mode::RGBA, header.size);
  std::memcpy(picture.samples.data(), canvas, picture.samples.size());
  return header.mode == Mode::RGB ? to_rgb(std::move(picture)) : picture;
}

}  // namespace

PictureHeader read_webp(Bytes bytes, const DecodeLimits& limits, Picture* pixels) {
  const auto data = webp_data(bytes);
  const Demuxer demuxer(WebPDemux(&data));
  WebPBitstreamFeatures features;
  if (!demuxer || WebPGetFeatures(data.bytes, data.size, &features) != VP8_STATUS_OK)
    refuse_damaged(Format::webp, "the file ends before the picture does, or its chunks are wrong");
  PictureHeader header;
  header.format = Format::webp;
  header.mode = features.has_alpha != 0 ? Mode::RGBA : Mode::RGB;
  header.size = {WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                 WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT)};
  header.orientation = webp_orientation(demuxer.get());
  check_size(header.size, limits);
  if (pixels) *pixels = features.has_animation != 0 ? decode_first_frame(bytes, header) : decode_still(bytes, header);
  return header;
}

}  // namespace tessera::images
