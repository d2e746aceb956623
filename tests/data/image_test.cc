// Images: files that are decoded and encoded, damaged and hostile ones, folders of them, and transforms of
// pixels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "nn/data/image_file.h"
#include "nn/data/image_folder.h"
#include "nn/data/image_ops.h"
#include "nn/data/loader.h"
#include "nn/data/sample_dataset.h"
#include "operators/indexing.h"
#include "operators/shape_ops.h"
#include "tests/data/idx_bytes.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::as_bytes;
using test::contains;
using test::error_of;

/// An image whose pixels differ: a smooth pattern, so that JPEG keeps it nearly.
HostArray pattern(int64_t height, int64_t width, int64_t channels) {
  HostArray image({height, width, channels}, u8);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c)
        image.data<uint8_t>()[(y * width + x) * channels + c] = static_cast<uint8_t>(
            std::lround(127 + 100 * std::sin(0.2 * static_cast<double>(x) + static_cast<double>(c)) *
                                  std::cos(0.15 * static_cast<double>(y))));
  return image;
}

std::vector<uint8_t> bytes_in(const HostArray& image) {
  return {image.data<uint8_t>(), image.data<uint8_t>() + image.numel()};
}

Sample one(HostArray image) {
  Sample sample;
  sample.push_back(std::move(image));
  return sample;
}

HostArray applied(const SampleTransform& transform, HostArray image, uint64_t seed = 1) {
  Sample sample = one(std::move(image));
  SampleRandom random(seed);
  transform(sample, random);
  return std::move(sample[0]);
}

TEST(ImageFile, PngRoundTripsToTheBit) {
  for (int64_t channels : {1, 3, 4})
    for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 5}, {40, 33}}) {
      const HostArray image = pattern(height, width, channels);
      const std::string png = encode_png(image);
      EXPECT_TRUE(is_png(as_bytes(png)));
      const HostArray again = decode_image(as_bytes(png), "[image] 'a'", {.channels = 0});
      EXPECT_EQ(image.shape(), again.shape());
      EXPECT_EQ(bytes_in(image), bytes_in(again));
    }
}

TEST(ImageFile, JpegRoundTripsNearly) {
  for (int64_t channels : {1, 3}) {
    const HostArray image = pattern(37, 50, channels);
    const std::string jpeg = encode_jpeg(image, 98);
    EXPECT_TRUE(is_jpeg(as_bytes(jpeg)));
    const HostArray again = decode_image(as_bytes(jpeg), "[image] 'a'", {.channels = 0});
    ASSERT_EQ(image.shape(), again.shape());
    for (int64_t i = 0; i < image.numel(); ++i)
      EXPECT_NEAR(image.data<uint8_t>()[i], again.data<uint8_t>()[i], 12);
    EXPECT_LT(encode_jpeg(image, 20).size(), jpeg.size());
  }
}

TEST(ImageFile, ChannelsAreConverted) {
  HostArray colour({1, 2, 3}, u8);
  const uint8_t values[] = {255, 0, 0, 10, 200, 30};
  std::copy_n(values, 6, colour.data<uint8_t>());
  const std::string png = encode_png(colour);
  const auto decoded = [&](int64_t channels) {
    return bytes_in(decode_image(as_bytes(png), "[image] 'a'", {.channels = channels}));
  };
  EXPECT_EQ((std::vector<uint8_t>{76, 124}), decoded(1));
  EXPECT_EQ((std::vector<uint8_t>{255, 0, 0, 255, 10, 200, 30, 255}), decoded(4));
  const std::string gray = encode_png(pattern(2, 2, 1)), alpha = encode_png(pattern(2, 2, 4));
  const HostArray from_gray = decode_image(as_bytes(gray), "[image] 'a'");
  EXPECT_EQ((Shape{2, 2, 3}), from_gray.shape());
  EXPECT_EQ(from_gray.data<uint8_t>()[3], from_gray.data<uint8_t>()[5]);
  EXPECT_EQ((Shape{2, 2, 3}), decode_image(as_bytes(alpha), "[image] 'a'").shape());
  error_of<InvalidArgument>([&] { decode_image(as_bytes(png), "[image] 'a'", {.channels = 2}); });
}

TEST(ImageFile, PillowReadsAndWritesTheSamePixels) {
  const std::string python = test::python_with("PIL, numpy");
  if (python.empty()) GTEST_SKIP() << "there is no Python with Pillow";
  const test::TempFolder folder;
  write_image(folder / "a.png", pattern(20, 31, 3));
  write_image(folder / "a.JPG", pattern(20, 31, 3), 95);
  test::spill(folder / "raw",
              std::string(reinterpret_cast<const char*>(pattern(20, 31, 3).raw()), 20 * 31 * 3));
  ASSERT_TRUE(test::run_python(python, folder, R"(
import numpy as np
from PIL import Image
a = np.fromfile('raw', dtype=np.uint8).reshape(20, 31, 3)
assert (np.asarray(Image.open('a.png')) == a).all()
jpeg = np.asarray(Image.open('a.JPG'))
assert np.abs(jpeg.astype(int) - a).max() < 20
jpeg.tofile('jpeg_raw')
rng = np.random.default_rng(1)
noise = rng.integers(0, 256, (24, 17, 4), dtype=np.uint8)
image = Image.fromarray(noise[:, :, :3])
def save(name, image, reference=None, **options):
    image.save(name, **options)
    np.asarray(Image.open(name).convert('RGB') if reference is None else reference).tofile(name + '.raw')
save('rgb.png', image)
save('rgba.png', Image.fromarray(noise))
save('gray.png', image.convert('L'))
save('la.png', Image.fromarray(noise).convert('LA'))
save('palette.png', image.quantize(17))
save('few.png', image.convert('1'))
save('gray.jpg', image.convert('L'))
smooth = image.resize((40, 40), Image.BICUBIC)
for s in (0, 1, 2):
    save('s%d.jpg' % s, smooth, subsampling=s, quality=80)
save('progressive.jpg', smooth, progressive=True)
np.asarray(image.resize((9, 11), Image.BILINEAR)).tofile('small.raw')
np.asarray(image.resize((40, 30), Image.BILINEAR)).tofile('large.raw')
)"));
  EXPECT_EQ(test::slurp(folder / "jpeg_raw").size(), size_t{20 * 31 * 3});
  const auto difference = [&](const HostArray& image, const std::string& raw) {
    const std::string expected = test::slurp(folder / raw);
    EXPECT_EQ(static_cast<size_t>(image.numel()), expected.size()) << raw;
    int most = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      most = std::max(most, std::abs(image.data<uint8_t>()[i] - static_cast<uint8_t>(expected[i])));
    return most;
  };
  for (const std::string name : {"rgb.png", "rgba.png", "gray.png", "la.png", "palette.png", "few.png"})
    EXPECT_EQ(0, difference(read_image(folder / name), name + ".raw")) << name;
  for (const std::string name : {"gray.jpg", "s0.jpg", "s1.jpg", "s2.jpg", "progressive.jpg"})
    EXPECT_LE(difference(read_image(folder / name), name + ".raw"), 3) << name;
  EXPECT_LE(difference(read_image(folder / "a.JPG"), "jpeg_raw"), 3);
  // Pillow rounds between the two passes.
  EXPECT_LE(difference(resized(read_image(folder / "rgb.png"), 11, 9), "small.raw"), 1);
  EXPECT_LE(difference(resized(read_image(folder / "rgb.png"), 30, 40), "large.raw"), 1);
}

TEST(ImageFile, DamageIsAnErrorThatNamesTheFile) {
  const test::TempFolder folder;
  for (const std::string& whole : {encode_png(pattern(30, 30, 3)), encode_jpeg(pattern(30, 30, 3))}) {
    for (size_t length = 0; length + 2 < whole.size(); length += length < 80 ? 1 : 37) {
      const std::string cut = whole.substr(0, length);
      const std::string message =
          error_of<FormatError>([&] { decode_image(as_bytes(cut), "[image] 'x.img'"); });
      EXPECT_TRUE(contains(message, "[image] 'x.img': expected")) << message;
    }
  }
  std::string png = encode_png(pattern(30, 30, 3));
  png[png.size() / 2] ^= 1;
  EXPECT_TRUE(contains(error_of<FormatError>([&] { decode_image(as_bytes(png), "[image] 'x'"); }), "PNG"));
  test::spill(folder / "text.png", "this is no image");
  EXPECT_TRUE(contains(error_of<FormatError>([&] { read_image(folder / "text.png"); }), folder / "text.png"));
  error_of<FileError>([&] { read_image(folder / "none.png"); });
}

TEST(ImageFile, SizesAreCheckedBeforeMemoryIsAllocated) {
  const std::string png = encode_png(pattern(30, 30, 3)), jpeg = encode_jpeg(pattern(30, 30, 3));
  for (const std::string& file : {png, jpeg})
    EXPECT_TRUE(contains(
        error_of<FormatError>([&] { decode_image(as_bytes(file), "[image] 'x'", {.max_pixels = 899}); }),
        "at most 899 pixels (ImageOptions::max_pixels), got 30 x 30"));
  // A JPEG file that claims 65500 x 65500 pixels: the size stands behind the mark FF C0.
  std::string huge = jpeg;
  const size_t frame = huge.find("\xff\xc0");
  ASSERT_NE(std::string::npos, frame);
  huge.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_TRUE(
      contains(error_of<FormatError>([&] { decode_image(as_bytes(huge), "[image] 'x'"); }), "65500 x 65500"));
}

TEST(ImageFile, OnlyImagesCanBeEncoded) {
  error_of<InvalidArgument>([] { encode_png(HostArray({2, 2}, u8)); });
  error_of<InvalidArgument>([] { encode_png(HostArray({2, 2, 2}, u8)); });
  error_of<InvalidArgument>([] { encode_png(HostArray({0, 2, 3}, u8)); });
  error_of<InvalidArgument>([] { encode_jpeg(HostArray({2, 2, 4}, u8)); });
  error_of<InvalidArgument>([] { encode_jpeg(HostArray({2, 2, 3}, f32)); });
  error_of<InvalidArgument>([] { encode_jpeg(HostArray({2, 2, 3}, u8), 0); });
  error_of<InvalidArgument>([] { write_image("a.gif", HostArray({2, 2, 3}, u8)); });
}

TEST(ImageFile, WritesArraysOfAnyLayoutAndDevice) {
  const test::TempFolder folder;
  const HostArray image = pattern(6, 5, 3);
  HostArray copy = image;
  const NDArray channels_first = to_ndarray(std::move(copy)).transpose({2, 0, 1}).clone();
  write_image(folder / "a.png", channels_first.to(virt(0)).transpose({1, 2, 0}));
  const HostArray back = read_image(folder / "a.png");
  ASSERT_EQ(image.shape(), back.shape());
  EXPECT_EQ(0, std::memcmp(image.raw(), back.raw(), image.bytes()));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         write_image(folder / "b.png", zeros({2, 2, 3}));
                       }),
                       "image_test.cc"));
}

TEST(HostArrayOf, CopiesValuesShapeAndTypeAndThrowsTheErrorOfTheArray) {
  const NDArray x = arange(6).reshape({2, 3}).T();
  const HostArray host = to_host_array(x);
  EXPECT_EQ((Shape{3, 2}), host.shape());
  EXPECT_EQ((std::vector<int64_t>{0, 3, 1, 4, 2, 5}),
            std::vector<int64_t>(host.data<int64_t>(), host.data<int64_t>() + 6));
  EXPECT_EQ(x.to_vector<int64_t>(), to_ndarray(to_host_array(x)).to_vector<int64_t>());
  EXPECT_EQ((Shape{0, 2}), to_host_array(zeros({0, 2}, f16)).shape());
  EXPECT_EQ(7.f, to_host_array(full({}, 7)).data<float>()[0]);
  const NDArray poisoned = take(ones({2}), array<int64_t>({5}), 0);
  error_of<Error>([&] { to_host_array(poisoned); });
  error_of<InvalidArgument>([&] { to_host_array(NDArray()); });
}

TEST(ImageFolder, ClassesAreTheSubfolders) {
  const test::TempFolder folder;
  for (const std::string name : {"dog", "cat", "cat/more", "empty"})
    std::filesystem::create_directory(folder / name);
  write_image(folder / "dog/1.png", pattern(5, 6, 3));
  write_image(folder / "cat/2.JPEG", pattern(7, 8, 1));
  write_image(folder / "cat/more/0.jpg", pattern(9, 4, 3));
  test::spill(folder / "cat/readme.txt", "no image");
  const ImageList list = list_images(folder.path());
  EXPECT_EQ((std::vector<std::string>{"cat", "dog", "empty"}), list.classes);
  EXPECT_EQ((std::vector<int64_t>{0, 0, 1}), list.labels);
  const SampleDataset set(image_folder(folder.path()),
                          {.transform = chain({resize(8, 8), channels_first()})});
  Loader loader(set, {.batch_size = 3});
  const Batch batch = *loader.begin();
  EXPECT_EQ((Shape{3, 3, 8, 8}), batch["image"].shape());
  EXPECT_EQ((std::vector<int64_t>{0, 0, 1}), batch["label"].to_vector<int64_t>());
  test::spill(folder / "dog/3.png", "damaged");
  EXPECT_TRUE(contains(
      error_of<FormatError>([&] { SampleDataset(image_folder(folder.path())).gather(Indices({3})); }),
      "dog/3.png"));
  error_of<FileError>([&] { image_folder(folder / "none"); });
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { image_folder(folder / "dog"); }), "got none in 0 subfolders"));
}

TEST(ImageOps, WindowsMoveImagesMasksAndBoxesTogether) {
  const ImageFields fields{.masks = {1}, .boxes = {2}};
  Sample sample;
  sample.push_back(pattern(10, 12, 3));
  sample.push_back(HostArray({10, 12}, i32));
  for (int i = 0; i < 120; ++i) sample[1].data<int32_t>()[i] = i;
  sample.push_back(host_array(std::vector<float>{4, 3, 8, 7, 0, 0, 1, 1}));
  sample[2].reshape({2, 4});
  const HostArray image = sample[0];
  SampleRandom random(1);
  crop(2, 3, 5, 20, 9, fields)(sample, random);
  ASSERT_EQ((Shape{5, 20, 3}), sample[0].shape());
  for (int64_t y = 0; y < 5; ++y)
    for (int64_t x = 0; x < 20; ++x) {
      const bool inside = x + 3 < 12;
      EXPECT_EQ(inside ? image.data<uint8_t>()[((y + 2) * 12 + x + 3) * 3 + 1] : 9,
                sample[0].data<uint8_t>()[(y * 20 + x) * 3 + 1]);
      EXPECT_EQ(inside ? (y + 2) * 12 + x + 3 : 0, sample[1].data<int32_t>()[y * 20 + x]);
    }
  EXPECT_EQ((std::vector<float>{1, 1, 5, 5, 0, 0, 0, 0}),
            std::vector<float>(sample[2].data<float>(), sample[2].data<float>() + 8));
  flip(1, fields)(sample, random);
  EXPECT_EQ(9, sample[0].data<uint8_t>()[0]);
  EXPECT_EQ(2 * 12 + 3, sample[1].data<int32_t>()[19]);
  EXPECT_EQ((std::vector<float>{15, 1, 19, 5, 20, 0, 20, 0}),
            std::vector<float>(sample[2].data<float>(), sample[2].data<float>() + 8));
  flip_vertical(1, fields)(sample, random);
  EXPECT_EQ(2 * 12 + 3, sample[1].data<int32_t>()[4 * 20 + 19]);
  EXPECT_EQ(0, sample[2].data<float>()[1]);
  EXPECT_EQ(4, sample[2].data<float>()[3]);
  resize(10, 10, fields)(sample, random);
  EXPECT_EQ((Shape{10, 10}), sample[1].shape());
  EXPECT_EQ(9.5f, sample[2].data<float>()[2]);
  EXPECT_EQ(8.f, sample[2].data<float>()[3]);
}

TEST(ImageOps, MirroringTwiceAndWindowsOfTheWholeChangeNothing) {
  const HostArray image = pattern(9, 7, 3);
  for (const SampleTransform& same :
       {chain({flip(1), flip(1)}), chain({flip_vertical(1), flip_vertical(1)}), crop(0, 0, 9, 7),
        center_crop(9, 7), resize(9, 7), random_crop(9, 7), pad_image(3, 7), flip(0)})
    EXPECT_EQ(bytes_in(image), bytes_in(applied(same, image)));
  EXPECT_EQ((Shape{12, 7, 3}), applied(pad_image(12, 2), image).shape());
  EXPECT_EQ((Shape{5, 4, 3}), applied(resize_shorter(4), HostArray({9, 7, 3}, u8)).shape());
}

TEST(ImageOps, ResizingKeepsConstantsAndMeans) {
  for (const DType dtype : {u8, f32}) {
    HostArray flat = HostArray({13, 11, 2}, u8);
    std::fill_n(flat.data<uint8_t>(), flat.numel(), uint8_t{77});
    for (const auto& [height, width] :
         std::vector<std::pair<int64_t, int64_t>>{{5, 3}, {40, 50}, {1, 1}, {13, 4}}) {
      const HostArray made = resized(flat.to(dtype), height, width).to(f32);
      for (int64_t i = 0; i < made.numel(); ++i) EXPECT_NEAR(77, made.data<float>()[i], 1e-4);
    }
  }
  const HostArray wide = resized(pattern(64, 64, 1).to(f32), 1, 1);
  EXPECT_GT(wide.data<float>()[0], 60) << "all pixels contribute, not only the four in the middle";
}

TEST(ImageOps, RandomWindowsAreRepeatableAndCoverTheImage) {
  HostArray numbers({6, 6, 1}, u8);
  for (int i = 0; i < 36; ++i) numbers.data<uint8_t>()[i] = static_cast<uint8_t>(i + 1);
  std::set<int> corners;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const HostArray made = applied(random_crop(4, 4, 1), numbers, seed);
    EXPECT_EQ(bytes_in(made), bytes_in(applied(random_crop(4, 4, 1), numbers, seed)));
    corners.insert(made.data<uint8_t>()[3 * 4 + 3]);  // the lower right pixel is within the image, or padding
  }
  // Windows begin at -1 to 3 in both directions, so that pixel is at 2 to 6, where 6 is padding.
  EXPECT_EQ(17u, corners.size());
  for (uint64_t seed = 0; seed < 50; ++seed)
    EXPECT_EQ((Shape{5, 3, 1}), applied(random_resized_crop(5, 3), numbers, seed).shape());
  EXPECT_EQ((Shape{5, 5, 1}), applied(random_resized_crop(5, 5), HostArray({200, 1, 1}, u8)).shape());
}

TEST(ImageOps, ColourJitterChangesWhatItSays) {
  const HostArray image = pattern(8, 8, 3);
  const SampleTransform brighter = colour_jitter({.brightness = 0.5});
  bool darker_seen = false, brighter_seen = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const HostArray made = applied(brighter, image, seed);
    const double factor = made.data<uint8_t>()[0] / static_cast<double>(image.data<uint8_t>()[0]);
    EXPECT_TRUE(factor > 0.48 && factor < 1.52) << factor;
    darker_seen |= factor < 0.9;
    brighter_seen |= factor > 1.1;
    for (int64_t i = 0; i < image.numel(); ++i)
      EXPECT_NEAR(std::min(255.0, factor * image.data<uint8_t>()[i]), made.data<uint8_t>()[i], 2.5);
  }
  EXPECT_TRUE(darker_seen && brighter_seen);
  // A turn of the hue by 1/3 of the circle permutes the channels of pure colours; gray stays.
  HostArray colours({1, 2, 3}, f32);
  const float values[] = {0.8f, 0.1f, 0.1f, 0.4f, 0.4f, 0.4f};
  std::copy_n(values, 6, colours.data<float>());
  const HostArray turned = applied(colour_jitter({.hue = 0.5}), colours, 3);
  const float* const p = turned.data<float>();
  EXPECT_NEAR(0.8f, std::max({p[0], p[1], p[2]}), 1e-6);
  EXPECT_NEAR(0.1f, std::min({p[0], p[1], p[2]}), 1e-6);
  EXPECT_EQ(0.4f, p[3]);
  // Saturation 0 is gray, contrast 0 is the mean: with a strength of 1 the factor reaches down to 0.
  EXPECT_EQ(bytes_in(image), bytes_in(applied(colour_jitter({}), image)));
}

TEST(ImageOps, CutoutFillsOneSquare) {
  HostArray image({20, 20, 3}, u8);
  std::fill_n(image.data<uint8_t>(), image.numel(), uint8_t{200});
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const HostArray made = applied(cutout(6, 1, 7), image, seed);
    int64_t filled = 0, top = 20, bottom = -1, left = 20, right = -1;
    for (int64_t i = 0; i < 400; ++i) {
      if (made.data<uint8_t>()[3 * i] != 7) continue;
      ++filled;
      top = std::min(top, i / 20);
      bottom = std::max(bottom, i / 20);
      left = std::min(left, i % 20);
      right = std::max(right, i % 20);
    }
    EXPECT_EQ((bottom - top + 1) * (right - left + 1), filled);
    EXPECT_TRUE(filled >= 9 && filled <= 36) << filled;
  }
}

TEST(ImageOps, NormaliseConvertsAndChannelsComeFirst) {
  HostArray image({1, 2, 3}, u8);
  const uint8_t values[] = {0, 51, 102, 153, 204, 255};
  std::copy_n(values, 6, image.data<uint8_t>());
  const HostArray made = applied(chain({normalise_image({0.5, 0, 0}, {0.5, 1, 2}), channels_first()}), image);
  ASSERT_EQ((Shape{3, 1, 2}), made.shape());
  const float expected[] = {-1, 0.2f, 0.2f, 0.8f, 0.2f, 0.5f};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(expected[i], made.data<float>()[i], 1e-6);
}

TEST(ImageOps, ChannelsFirstComesAfterWhatMovesPixels) {
  const std::vector<std::pair<std::string, SampleTransform>> all = {
      {"flip", flip(1)},
      {"flip_vertical", flip_vertical(1)},
      {"crop", crop(0, 0, 2, 2)},
      {"center_crop", center_crop(2, 2)},
      {"random_crop", random_crop(2, 2)},
      {"pad_image", pad_image(9, 9)},
      {"resize", resize(4, 4)},
      {"resize_shorter", resize_shorter(4)},
      {"random_resized_crop", random_resized_crop(4, 4)},
      {"cutout", cutout(2)},
      {"channels_first", channels_first()}};
  for (const auto& [name, transform] : all)
    for (const int64_t channels : {1, 3, 4}) {
      const std::string message = error_of<InvalidArgument>([&] {
        applied(chain({channels_first(), transform}), pattern(7, 6, channels));
      });
      EXPECT_TRUE(contains(message, '[' + name + ']')) << message;
      EXPECT_TRUE(contains(message, "did channels_first() come before?")) << message;
      EXPECT_NO_THROW(
          applied(chain({channels_first(), channels_last(), transform}), pattern(7, 6, channels)));
    }
  EXPECT_NO_THROW(applied(flip(1), pattern(1, 9, 3)));
  EXPECT_NO_THROW(applied(flip(1), pattern(8, 8, 13)));
}

TEST(ImageOps, WhatMakesNoSenseIsRefused) {
  for (const auto& make : std::vector<std::function<void()>>{
           [] { crop(0, 0, 0, 1); }, [] { resize(-1, 5); }, [] { random_crop(1, 1, -1); }, [] { flip(1.5); },
           [] { colour_jitter({.hue = 0.6}); }, [] { colour_jitter({.contrast = NAN}); }, [] { cutout(0); },
           [] { normalise_image({0}, {0}); }, [] { normalise_image({}, {}); }, [] { chain({nullptr}); },
           [] { random_resized_crop(4, 4, {.min_area = 0}); }, [] { resize_shorter(0); },
           [] { crop(INT64_MIN, 0, 2, 2); }, [] { crop(0, INT64_MIN, 2, 2); },
           [] { crop(INT64_MAX, 0, 2, 2); }})
    error_of<InvalidArgument>(make);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { applied(random_crop(5, 5), pattern(4, 9, 3)); }),
                       "images of at least 5 x 5 pixels with a padding of 0, got shape (4, 9, 3)"));
  error_of<InvalidArgument>([] { applied(resize(3, 3), HostArray({3, 3}, u8)); });
  error_of<InvalidArgument>([] { applied(flip(1, {.image = 4}), pattern(2, 2, 3)); });
  error_of<InvalidArgument>([] { applied(normalise_image({0, 0}, {1, 1}), pattern(2, 2, 3)); });
  error_of<InvalidArgument>([] {
    Sample sample = one(pattern(4, 4, 3));
    sample.push_back(HostArray({3, 4}, u8));
    SampleRandom random(1);
    flip(1, {.masks = {1}})(sample, random);
  });
}

}  // namespace
}  // namespace mx::data
