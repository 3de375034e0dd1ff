// SPDX-License-Identifier: Apache-2.0
// Reads the annotations of COCO into columns, in one pass over their JSON. If a key occurs twice in an object, the last one counts, as in Python.
#include <array>
#include <cstring>
#include <vector>

#include "ndd/python_interface.h"
#include "readers/json.h"

namespace ndd {
namespace {

// How an annotation stores its mask: not at all, run lengths as a list, run lengths as compressed text, or polygons.
NDD_ENUM("coco.MaskKind", MaskKind, uint8_t, nothing, counts, text, polygons);
// What the caller needs: the rest of the document is only skipped.
NDD_PLAIN_ENUM("coco.Flags", Flags, int, read_polygons = 1, read_masks = 2, read_categories = 4, read_crowds = 8);

NDD_ENUM("coco.Column", Column, int64_t, names, name_ends, ids, heights, widths, boxes, images, labels, crowds, categories, kinds, values, value_ends,
         part_ends, texts, text_ends, sizes);

// Columns instead of objects: Python views each as one array. The i-th `end` is where the i-th element stops in the values before it.
// A key may come before or after those that explain it, and may come twice; columns are filled in the order of the text, and joined by ids in Python.
struct CocoColumns {
  // One element per image: name (and its end), id, height, width.
  std::string names;
  std::vector<int64_t> name_ends, ids, heights, widths;
  // One element per annotation: box (4 numbers, -inf if it is missing), image, category, whether it is a crowd.
  std::vector<float> boxes;
  std::vector<int64_t> images, labels;
  std::vector<uint8_t> crowds;
  // Its mask: polygons or run lengths (part_ends counts the parts, value_ends the numbers); or text; height and width for run lengths.
  std::vector<uint8_t> kinds;
  std::vector<double> values;
  std::vector<int64_t> value_ends, part_ends, text_ends, sizes;
  std::string texts;
  std::vector<int64_t> categories;  // ids

  std::string error;
  int kind = -1;  // JsonError::Kind of the error, -1 without one
};

class CocoParser {
 public:
  CocoParser(const char* text, int64_t length, int64_t flags, CocoColumns& out) : json_(text, length), length_(length), flags_(flags), out_(out) {}

  void parse() {
    json_.object("the document", [this](std::string_view name) {
      if (name == "images") {
        // The key may have occurred before; its columns begin again.
        out_.names.clear();
        for (auto* column : {&out_.name_ends, &out_.ids, &out_.heights, &out_.widths}) column->clear();
        list("images", [this] { image(); });
      } else if (name == "annotations") {
        // Avoids growing: hardly any number has fewer than 8 characters, and pages that are not used take no memory.
        if (flags_ & (read_polygons | read_masks)) out_.values.reserve(length_ / 8);
        out_.boxes.clear();
        for (auto* column : {&out_.images, &out_.labels, &out_.value_ends, &out_.part_ends, &out_.text_ends, &out_.sizes}) column->clear();
        for (auto* column : {&out_.crowds, &out_.kinds}) column->clear();
        out_.values.clear();
        out_.texts.clear();
        list("annotations", [this] { annotation(); });
      } else if (name == "categories" && (flags_ & read_categories)) {
        out_.categories.clear();
        list("categories", [this] { category(); });
      } else {
        json_.skip();
      }
    });
    json_.end();
  }

 private:
  // null instead of a list counts as an empty one.
  template <class F>
  void list(const char* what, F element) {
    if (!json_.null()) json_.array(what, element);
  }

  void image() {
    int64_t id = Json::missing(), height = 0, width = 0;
    // A repeated file_name replaces the first one.
    const size_t begin = out_.names.size();
    json_.object("an image", [&](std::string_view name) {
      if (name == "file_name") {
        out_.names.resize(begin);
        out_.names += json_.text("file_name");
      } else if (name == "id") {
        id = json_.long_integer("id of an image");
      } else if (name == "height") {
        height = extent("height");
      } else if (name == "width") {
        width = extent("width");
      } else {
        json_.skip();
      }
    });
    if (out_.names.size() == begin) json_.fail(JsonError::Type, "file_name must be text, not empty, in the image that ends");
    if (id == Json::missing()) json_.fail(JsonError::Invalid, "id is missing in the image that ends");
    out_.name_ends.push_back(static_cast<int64_t>(out_.names.size()));
    out_.ids.push_back(id);
    out_.heights.push_back(height);
    out_.widths.push_back(width);
  }

  // null counts as 0: an unknown extent.
  int64_t extent(const char* what) {
    const int64_t value = json_.integer(what);
    return value == Json::missing() ? 0 : value;
  }

  void category() {
    int64_t id = Json::missing();
    json_.object("a category", [&](std::string_view name) { name == "id" ? void(id = json_.long_integer("id of a category")) : json_.skip(); });
    out_.categories.push_back(id);
  }

  void annotation() {
    constexpr auto none = -std::numeric_limits<float>::infinity();
    std::array<float, 4> box{none, none, none, none};
    int64_t image = Json::missing(), label = 0;
    bool crowd = false;
    // Where the masks of earlier annotations end: a repeated segmentation starts there again.
    const Shape before = shape();
    clear_shape(before);
    json_.object("an annotation", [&](std::string_view name) {
      if (name == "bbox") {
        box = read_box(box);
      } else if (name == "image_id") {
        image = json_.long_integer("image_id");
      } else if (name == "category_id") {
        const int64_t category = json_.long_integer("category_id");
        label = category == Json::missing() ? 0 : category;
      } else if (name == "iscrowd" && (flags_ & read_crowds)) {
        crowd = json_.truth();
      } else if (name == "segmentation" && (flags_ & (read_polygons | read_masks))) {
        clear_shape(before);
        segmentation();
      } else {
        json_.skip();
      }
    });
    out_.boxes.insert(out_.boxes.end(), box.begin(), box.end());
    out_.images.push_back(image);
    out_.labels.push_back(label);
    out_.crowds.push_back(crowd);
    // Without masks their columns stay empty.
    if (!(flags_ & (read_polygons | read_masks))) return;
    out_.kinds.push_back(static_cast<uint8_t>(kind_));
    out_.part_ends.push_back(static_cast<int64_t>(out_.value_ends.size()));
    out_.text_ends.push_back(static_cast<int64_t>(out_.texts.size()));
    out_.sizes.insert(out_.sizes.end(), size_.begin(), size_.end());
  }

  // null is a missing box.
  std::array<float, 4> read_box(std::array<float, 4> box) {
    if (json_.null()) return box;
    size_t count = 0;
    json_.array("bbox", [&] {
      const double value = json_.number();
      if (count < 4) box[count] = static_cast<float>(value);
      ++count;
    });
    if (count != 4) json_.fail(JsonError::Invalid, "`bbox` must contain exactly 4 values, got " + std::to_string(count) + " in the list that ends");
    return box;
  }

  // Lengths of the columns of masks.
  struct Shape {
    size_t values, parts, text;
  };
  Shape shape() const { return {out_.values.size(), out_.value_ends.size(), out_.texts.size()}; }
  void clear_shape(const Shape& before) {
    out_.values.resize(before.values);
    out_.value_ends.resize(before.parts);
    out_.texts.resize(before.text);
    kind_ = MaskKind::nothing;
    size_ = {0, 0};
  }

  // A part of a mask: one polygon, or all run lengths.
  void numbers(const char* what) {
    json_.array(what, [this] { out_.values.push_back(json_.number()); });
    out_.value_ends.push_back(static_cast<int64_t>(out_.values.size()));
  }

  void segmentation() {
    // A list holds polygons; an object holds run lengths (RLE).
    const char first = json_.next();
    if (first == '[') {
      kind_ = MaskKind::polygons;
      json_.array("segmentation", [this] { numbers("a polygon"); });
    } else if (first == 'n' || !(flags_ & read_masks)) {
      json_.skip();
    } else {
      run_lengths();
    }
  }

  // RLE, uncompressed ("counts" is a list) or compressed by the COCO API ("counts" is text), with "size" as height and width.
  void run_lengths() {
    size_t sides = 0;
    const Shape before = shape();
    json_.object("segmentation", [&](std::string_view name) {
      if (name == "counts") {
        clear_counts(before);
        if (json_.next() == '"') {
          out_.texts += json_.text("counts");
          kind_ = MaskKind::text;
        } else {
          numbers("counts");
          kind_ = MaskKind::counts;
        }
      } else if (name == "size") {
        sides = 0;
        json_.array("size", [&] {
          const int64_t side = extent("size");
          if (sides < 2) size_[sides] = side;
          ++sides;
        });
        if (sides == 2) return;
        json_.fail(JsonError::Invalid, "`size` must contain exactly 2 values, got " + std::to_string(sides) + " in the list that ends");
      } else {
        json_.skip();
      }
    });
    if (kind_ == MaskKind::nothing || sides != 2) json_.fail(JsonError::Type, "counts or size is missing in the segmentation that ends");
  }

  // As clear_shape(), but keeps the size, which may precede the counts.
  void clear_counts(const Shape& before) {
    const auto size = size_;
    clear_shape(before);
    size_ = size;
  }

  Json json_;
  const int64_t length_, flags_;
  CocoColumns& out_;
  MaskKind kind_ = MaskKind::nothing;
  std::array<int64_t, 2> size_{};
};

// The memory stays that of the columns: valid until ndd_coco_release.
template <class Column>
int64_t view_column(const Column& column, const void** data) {
  *data = column.data();
  return static_cast<int64_t>(column.size());
}

}  // namespace
}  // namespace ndd

// Parses a text, which a zero byte must follow. Errors: see ndd_coco_error.
NDD_EXPORT(release, void*, ndd_coco_parse, (const char* text, int64_t length, int64_t flags)) {
  // Returned even after an error, which Python reads from it and then releases it.
  auto* columns = new ndd::CocoColumns;
  try {
    ndd::CocoParser(text, length, flags, *columns).parse();
  } catch (const ndd::JsonError& error) {
    columns->error = error.what();
    columns->kind = error.kind;
  } catch (const std::exception& error) {  // out of memory
    columns->error = error.what();
    columns->kind = ndd::JsonError::Type;
  }
  return columns;
}

// Return the kind of the JsonError, -1 without one, and its text.
NDD_EXPORT(keep, int64_t, ndd_coco_error_kind, (void* columns)) { return static_cast<ndd::CocoColumns*>(columns)->kind; }
NDD_EXPORT(keep, const char*, ndd_coco_error, (void* columns)) { return static_cast<ndd::CocoColumns*>(columns)->error.c_str(); }

// Returns the number of elements of a column, and sets `data` to them.
NDD_EXPORT(release, int64_t, ndd_coco_column, (void* columns, int64_t number, const void** data)) {
  const auto& c = *static_cast<ndd::CocoColumns*>(columns);
  switch (static_cast<ndd::Column>(number)) {
    case ndd::Column::names: return ndd::view_column(c.names, data);
    case ndd::Column::name_ends: return ndd::view_column(c.name_ends, data);
    case ndd::Column::ids: return ndd::view_column(c.ids, data);
    case ndd::Column::heights: return ndd::view_column(c.heights, data);
    case ndd::Column::widths: return ndd::view_column(c.widths, data);
    case ndd::Column::boxes: return ndd::view_column(c.boxes, data);
    case ndd::Column::images: return ndd::view_column(c.images, data);
    case ndd::Column::labels: return ndd::view_column(c.labels, data);
    case ndd::Column::crowds: return ndd::view_column(c.crowds, data);
    case ndd::Column::categories: return ndd::view_column(c.categories, data);
    case ndd::Column::kinds: return ndd::view_column(c.kinds, data);
    case ndd::Column::values: return ndd::view_column(c.values, data);
    case ndd::Column::value_ends: return ndd::view_column(c.value_ends, data);
    case ndd::Column::part_ends: return ndd::view_column(c.part_ends, data);
    case ndd::Column::texts: return ndd::view_column(c.texts, data);
    case ndd::Column::text_ends: return ndd::view_column(c.text_ends, data);
    case ndd::Column::sizes: return ndd::view_column(c.sizes, data);
  }
  return 0;
}

NDD_EXPORT(release, void, ndd_coco_release, (void* columns)) { delete static_cast<ndd::CocoColumns*>(columns); }
