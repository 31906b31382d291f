// What does the extension need of Godot? The functions of gdextension_interface.h that it calls, and values that free themselves.
//
// A Variant holds every value that crosses the border, so that one class, Value, converts all of them. Texts are UTF-8 on this side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../gdextension_interface.h"

namespace godot {

// The functions of Godot, by the names under which Godot finds them. load() fills them in before anything else is called.
struct Api {
    GDExtensionInterfaceGetVariantFromTypeConstructor get_variant_from_type_constructor;
    GDExtensionInterfaceGetVariantToTypeConstructor get_variant_to_type_constructor;
    GDExtensionInterfaceVariantGetPtrDestructor variant_get_ptr_destructor;
    GDExtensionInterfaceVariantNewNil variant_new_nil;
    GDExtensionInterfaceVariantNewCopy variant_new_copy;
    GDExtensionInterfaceVariantDestroy variant_destroy;
    GDExtensionInterfaceVariantGetType variant_get_type;
    GDExtensionInterfaceVariantGetTypeName variant_get_type_name;
    GDExtensionInterfaceVariantConstruct variant_construct;
    GDExtensionInterfaceVariantCall variant_call;
    GDExtensionInterfaceVariantGetKeyed variant_get_keyed;
    GDExtensionInterfaceVariantSetKeyed variant_set_keyed;
    GDExtensionInterfaceVariantGetIndexed variant_get_indexed;
    GDExtensionInterfaceStringNewWithUtf8CharsAndLen2 string_new_with_utf8_chars_and_len2;
    GDExtensionInterfaceStringToUtf8Chars string_to_utf8_chars;
    GDExtensionInterfaceStringNameNewWithUtf8Chars string_name_new_with_utf8_chars;
    GDExtensionInterfacePackedByteArrayOperatorIndexConst packed_byte_array_operator_index_const;
    GDExtensionInterfaceGlobalGetSingleton global_get_singleton;
    GDExtensionInterfaceObjectSetInstance object_set_instance;
    GDExtensionInterfaceObjectMethodBindCall object_method_bind_call;
    GDExtensionInterfaceClassdbGetMethodBind classdb_get_method_bind;
    GDExtensionInterfaceClassdbConstructObject2 classdb_construct_object2;
    GDExtensionInterfaceClassdbRegisterExtensionClass4 classdb_register_extension_class4;
    GDExtensionInterfaceClassdbRegisterExtensionClassMethod classdb_register_extension_class_method;
    GDExtensionInterfaceClassdbRegisterExtensionClassProperty classdb_register_extension_class_property;
    GDExtensionInterfaceClassdbRegisterExtensionClassSignal classdb_register_extension_class_signal;
    GDExtensionInterfaceClassdbUnregisterExtensionClass classdb_unregister_extension_class;
    GDExtensionInterfacePrintErrorWithMessage print_error_with_message;
};
extern Api api;

// Fills in `api`. False if this Godot is older than 4.4, which lacks some of the functions.
bool load(GDExtensionInterfaceGetProcAddress get_proc_address);

// Writes an error to Godot's console and debugger.
void print_error(const std::string& message);

// A StringName: names of classes, methods, properties and signals.
class Name {
public:
    explicit Name(const std::string& text);
    ~Name();
    Name(const Name&) = delete;
    Name& operator=(const Name&) = delete;
    GDExtensionStringNamePtr get() { return &data_; }

private:
    void* data_ = nullptr;
};

// A String.
class String {
public:
    explicit String(const std::string& text);
    ~String();
    String(const String&) = delete;
    String& operator=(const String&) = delete;
    GDExtensionStringPtr get() { return &data_; }

private:
    void* data_ = nullptr;
};

// A Variant.
class Value {
public:
    Value() { api.variant_new_nil(data_); }
    Value(const Value& other) { api.variant_new_copy(data_, other.data_); }
    Value& operator=(const Value& other);
    ~Value() { api.variant_destroy(data_); }

    static Value of(bool value);
    static Value of(int64_t value);
    static Value of(double value);
    static Value of(const std::string& text);
    static Value of_object(GDExtensionObjectPtr object);
    // A copy of a Variant that Godot passes.
    static Value copy(GDExtensionConstVariantPtr variant);
    // What a typed call passes: `value` points to a value of `type`.
    static Value of_typed(GDExtensionVariantType type, GDExtensionConstTypePtr value);
    static Value dictionary() { return construct(GDEXTENSION_VARIANT_TYPE_DICTIONARY, nullptr); }
    static Value array() { return construct(GDEXTENSION_VARIANT_TYPE_ARRAY, nullptr); }

    GDExtensionVariantType type() const { return api.variant_get_type(data_); }
    std::string type_name() const;
    bool is_text() const;
    bool is_list() const;
    // A copy as `type`, where Godot has a constructor for it; else nil.
    Value as(GDExtensionVariantType type) const { return construct(type, this); }

    // The value of a Variant that has the type, which the caller has checked.
    bool to_bool() const;
    int64_t to_int() const;
    double to_float() const;
    std::string to_text() const;
    // The bytes of a PackedByteArray, valid while this value lives and nobody changes it. Null for an empty one.
    const uint8_t* bytes() const;

    int64_t size() const { return call("size", {}).to_int(); }
    Value get(const Value& key) const;
    Value at(int64_t index) const;
    void set(const Value& key, const Value& value);
    void append(const Value& value) const { call("append", {&value}); }
    // Calls a method; nil if there is none of this name or if it refuses the arguments.
    Value call(const char* method, const std::vector<const Value*>& arguments) const;

    GDExtensionVariantPtr raw() const { return const_cast<unsigned char*>(data_); }
    // Replaces the Variant at `variant` with a copy.
    void store(GDExtensionVariantPtr variant) const;
    // Replaces the value of `type` at `target`, which a typed call returns, with a copy.
    void store_typed(GDExtensionVariantType type, GDExtensionTypePtr target) const;

private:
    static Value construct(GDExtensionVariantType type, const Value* argument);

    // 24 bytes, or 40 in a Godot that is built with double precision.
    alignas(8) unsigned char data_[40];
};

// Calls a static method of a class. False if this Godot does not have it with that hash.
bool call_static(const char* class_name, const char* method, int64_t hash, const std::vector<const Value*>& arguments, Value& result);

// The value of a text of JSON, whose numbers are floats, as Godot's parser makes them. Nil if it is no JSON.
Value parse_json(const std::string& text);

}  // namespace godot
