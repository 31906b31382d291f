#include "godot.hpp"

#include <cstring>

namespace godot {

Api api;

template <typename Function>
static bool find(GDExtensionInterfaceGetProcAddress get_proc_address, const char* name, Function& function) {
    function = reinterpret_cast<Function>(get_proc_address(name));
    return function != nullptr;
}

bool load(GDExtensionInterfaceGetProcAddress get) {
#define FIND(name) find(get, #name, api.name)
    return FIND(get_variant_from_type_constructor) && FIND(get_variant_to_type_constructor) && FIND(variant_get_ptr_destructor) &&
           FIND(variant_new_nil) && FIND(variant_new_copy) && FIND(variant_destroy) && FIND(variant_get_type) &&
           FIND(variant_get_type_name) && FIND(variant_construct) && FIND(variant_call) && FIND(variant_get_keyed) &&
           FIND(variant_set_keyed) && FIND(variant_get_indexed) && FIND(string_new_with_utf8_chars_and_len2) &&
           FIND(string_to_utf8_chars) && FIND(string_name_new_with_utf8_chars) && FIND(packed_byte_array_operator_index_const) &&
           FIND(global_get_singleton) && FIND(object_set_instance) && FIND(object_method_bind_call) &&
           FIND(classdb_get_method_bind) && FIND(classdb_construct_object2) && FIND(classdb_register_extension_class4) &&
           FIND(classdb_register_extension_class_method) && FIND(classdb_register_extension_class_property) &&
           FIND(classdb_register_extension_class_signal) && FIND(classdb_unregister_extension_class) &&
           FIND(print_error_with_message);
#undef FIND
}

void print_error(const std::string& message) {
    api.print_error_with_message(message.c_str(), message.c_str(), "NanovllmEngine", "nanovllm", 0, false);
}

static void destroy(GDExtensionVariantType type, GDExtensionTypePtr value) {
    // Null for types without resources, such as int.
    if (GDExtensionPtrDestructor destructor = api.variant_get_ptr_destructor(type)) destructor(value);
}

Name::Name(const std::string& text) { api.string_name_new_with_utf8_chars(&data_, text.c_str()); }
Name::~Name() { destroy(GDEXTENSION_VARIANT_TYPE_STRING_NAME, &data_); }

String::String(const std::string& text) {
    if (text.find('\0') == std::string::npos) {
        api.string_new_with_utf8_chars_and_len2(&data_, text.data(), static_cast<GDExtensionInt>(text.size()));
        return;
    }
    // A String of Godot ends at a NUL.
    std::string replaced;
    for (char c : text) {
        if (c == '\0') replaced += "\xEF\xBF\xBD";
        else replaced += c;
    }
    api.string_new_with_utf8_chars_and_len2(&data_, replaced.data(), static_cast<GDExtensionInt>(replaced.size()));
}
String::~String() { destroy(GDEXTENSION_VARIANT_TYPE_STRING, &data_); }

Value& Value::operator=(const Value& other) {
    if (this != &other) other.store(data_);
    return *this;
}

void Value::store(GDExtensionVariantPtr variant) const {
    api.variant_destroy(variant);
    api.variant_new_copy(variant, data_);
}

Value Value::copy(GDExtensionConstVariantPtr variant) {
    Value value;
    api.variant_destroy(value.data_);
    api.variant_new_copy(value.data_, variant);
    return value;
}

Value Value::of_typed(GDExtensionVariantType type, GDExtensionConstTypePtr source) {
    if (type == GDEXTENSION_VARIANT_TYPE_NIL) return copy(source);
    Value value;
    api.variant_destroy(value.data_);
    api.get_variant_from_type_constructor(type)(value.data_, const_cast<GDExtensionTypePtr>(source));
    return value;
}

void Value::store_typed(GDExtensionVariantType type, GDExtensionTypePtr target) const {
    if (type == GDEXTENSION_VARIANT_TYPE_NIL) return store(target);
    destroy(type, target);
    api.get_variant_to_type_constructor(type)(target, raw());
}

Value Value::of(bool value) {
    GDExtensionBool converted = value;
    return of_typed(GDEXTENSION_VARIANT_TYPE_BOOL, &converted);
}
Value Value::of(int64_t value) { return of_typed(GDEXTENSION_VARIANT_TYPE_INT, &value); }
Value Value::of(double value) { return of_typed(GDEXTENSION_VARIANT_TYPE_FLOAT, &value); }
Value Value::of(const std::string& text) { return of_typed(GDEXTENSION_VARIANT_TYPE_STRING, String(text).get()); }
Value Value::of_object(GDExtensionObjectPtr object) { return of_typed(GDEXTENSION_VARIANT_TYPE_OBJECT, &object); }

Value Value::construct(GDExtensionVariantType type, const Value* argument) {
    Value value;
    api.variant_destroy(value.data_);
    GDExtensionConstVariantPtr arguments[] = {argument ? argument->data_ : nullptr};
    GDExtensionCallError error = {};
    api.variant_construct(type, value.data_, arguments, argument ? 1 : 0, &error);
    return error.error == GDEXTENSION_CALL_OK ? value : Value();
}

std::string Value::type_name() const {
    String name("");
    destroy(GDEXTENSION_VARIANT_TYPE_STRING, name.get());
    api.variant_get_type_name(type(), name.get());
    return of_typed(GDEXTENSION_VARIANT_TYPE_STRING, name.get()).to_text();
}

bool Value::is_text() const {
    return type() == GDEXTENSION_VARIANT_TYPE_STRING || type() == GDEXTENSION_VARIANT_TYPE_STRING_NAME;
}

bool Value::is_list() const {
    GDExtensionVariantType is = type();
    return is == GDEXTENSION_VARIANT_TYPE_ARRAY || is == GDEXTENSION_VARIANT_TYPE_PACKED_STRING_ARRAY ||
           is == GDEXTENSION_VARIANT_TYPE_PACKED_INT32_ARRAY || is == GDEXTENSION_VARIANT_TYPE_PACKED_INT64_ARRAY ||
           is == GDEXTENSION_VARIANT_TYPE_PACKED_FLOAT32_ARRAY || is == GDEXTENSION_VARIANT_TYPE_PACKED_FLOAT64_ARRAY;
}

bool Value::to_bool() const {
    GDExtensionBool value = 0;
    api.get_variant_to_type_constructor(GDEXTENSION_VARIANT_TYPE_BOOL)(&value, raw());
    return value != 0;
}

int64_t Value::to_int() const {
    int64_t value = 0;
    api.get_variant_to_type_constructor(GDEXTENSION_VARIANT_TYPE_INT)(&value, raw());
    return value;
}

double Value::to_float() const {
    double value = 0;
    api.get_variant_to_type_constructor(GDEXTENSION_VARIANT_TYPE_FLOAT)(&value, raw());
    return value;
}

std::string Value::to_text() const {
    // A StringName becomes a String.
    void* string = nullptr;
    api.get_variant_to_type_constructor(GDEXTENSION_VARIANT_TYPE_STRING)(&string, raw());
    GDExtensionInt length = api.string_to_utf8_chars(&string, nullptr, 0);
    std::string text(static_cast<size_t>(length), '\0');
    api.string_to_utf8_chars(&string, &text[0], length);
    destroy(GDEXTENSION_VARIANT_TYPE_STRING, &string);
    return text;
}

const uint8_t* Value::bytes() const {
    if (size() == 0) return nullptr;
    // A copy shares the bytes with this value.
    void* array[2] = {nullptr, nullptr};
    api.get_variant_to_type_constructor(GDEXTENSION_VARIANT_TYPE_PACKED_BYTE_ARRAY)(array, raw());
    const uint8_t* bytes = api.packed_byte_array_operator_index_const(array, 0);
    destroy(GDEXTENSION_VARIANT_TYPE_PACKED_BYTE_ARRAY, array);
    return bytes;
}

Value Value::get(const Value& key) const {
    Value value;
    api.variant_destroy(value.data_);
    GDExtensionBool valid = 0;
    api.variant_get_keyed(data_, key.data_, value.data_, &valid);
    return value;
}

Value Value::at(int64_t index) const {
    Value value;
    api.variant_destroy(value.data_);
    GDExtensionBool valid = 0, out_of_bounds = 0;
    api.variant_get_indexed(data_, index, value.data_, &valid, &out_of_bounds);
    return value;
}

void Value::set(const Value& key, const Value& value) {
    GDExtensionBool valid = 0;
    api.variant_set_keyed(data_, key.data_, value.data_, &valid);
}

static std::vector<GDExtensionConstVariantPtr> pointers(const std::vector<const Value*>& arguments) {
    std::vector<GDExtensionConstVariantPtr> raw;
    for (const Value* argument : arguments) raw.push_back(argument->raw());
    return raw;
}

Value Value::call(const char* method, const std::vector<const Value*>& arguments) const {
    std::vector<GDExtensionConstVariantPtr> raw_arguments = pointers(arguments);
    Value result;
    api.variant_destroy(result.data_);
    GDExtensionCallError error = {};
    api.variant_call(raw(), Name(method).get(), raw_arguments.data(), static_cast<GDExtensionInt>(raw_arguments.size()), result.data_,
                     &error);
    return result;
}

bool call_static(const char* class_name, const char* method, int64_t hash, const std::vector<const Value*>& arguments, Value& result) {
    GDExtensionMethodBindPtr bind = api.classdb_get_method_bind(Name(class_name).get(), Name(method).get(), hash);
    if (!bind) return false;
    std::vector<GDExtensionConstVariantPtr> raw_arguments = pointers(arguments);
    api.variant_destroy(result.raw());
    GDExtensionCallError error = {};
    api.object_method_bind_call(bind, nullptr, raw_arguments.data(), static_cast<GDExtensionInt>(raw_arguments.size()), result.raw(),
                                &error);
    return error.error == GDEXTENSION_CALL_OK;
}

Value parse_json(const std::string& text) {
    // The Value counts as the first reference to the object, and frees it.
    Value parser = Value::of_object(api.classdb_construct_object2(Name("JSON").get()));
    Value source = Value::of(text);
    bool is_json = parser.call("parse", {&source}).to_int() == 0;
    return is_json ? parser.call("get_data", {}) : Value();
}

}  // namespace godot
