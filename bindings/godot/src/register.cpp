// How does Godot call a Node? Tables of its methods, properties and signals, and one function for each way to call.

#include <memory>
#include <vector>

#include "node.hpp"

using godot::Name;
using godot::String;
using godot::Value;

namespace {

const char* const CLASS = "NanovllmEngine";
// Of Godot's enumerations, which the interface repeats only as numbers.
const int32_t NOTIFICATION_READY = 13;
const int32_t NOTIFICATION_INTERNAL_PROCESS = 25;
const uint32_t HINT_RANGE = 1;
const uint32_t HINT_ENUM = 2;
const uint32_t HINT_NONE = 0;
const uint32_t USAGE_DEFAULT = 6;

const GDExtensionVariantType NIL = GDEXTENSION_VARIANT_TYPE_NIL;
const GDExtensionVariantType BOOL = GDEXTENSION_VARIANT_TYPE_BOOL;
const GDExtensionVariantType INT = GDEXTENSION_VARIANT_TYPE_INT;
const GDExtensionVariantType FLOAT = GDEXTENSION_VARIANT_TYPE_FLOAT;
const GDExtensionVariantType STRING = GDEXTENSION_VARIANT_TYPE_STRING;
const GDExtensionVariantType ARRAY = GDEXTENSION_VARIANT_TYPE_ARRAY;
const GDExtensionVariantType DICTIONARY = GDEXTENSION_VARIANT_TYPE_DICTIONARY;

GDExtensionClassLibraryPtr library;

struct Argument {
    const char* name;
    GDExtensionVariantType type;
};

struct Method {
    std::string name;
    // NIL: returns nothing.
    GDExtensionVariantType returns;
    std::vector<Argument> arguments;
    // Whether the last argument is a Dictionary that may be left out.
    bool has_default;
    Value (*call)(Node& node, const Value* arguments);
};

const std::vector<Method>& methods() {
    static const std::vector<Method> all = {
        {"open", STRING, {}, false, [](Node& node, const Value*) { return Value::of(node.open()); }},
        {"close", NIL, {}, false, [](Node& node, const Value*) { return node.close(), Value(); }},
        {"is_open", BOOL, {}, false, [](Node& node, const Value*) { return Value::of(node.is_open()); }},
        {"generate", INT, {{"prompt", STRING}, {"options", DICTIONARY}}, true,
         [](Node& node, const Value* with) { return Value::of(node.generate(with[0].to_text(), with[1])); }},
        {"generate_chat", INT, {{"messages", ARRAY}, {"options", DICTIONARY}}, true,
         [](Node& node, const Value* with) { return Value::of(node.generate_chat(with[0], with[1])); }},
        // The names that the other languages have for the same.
        {"add_request", INT, {{"prompt", STRING}, {"options", DICTIONARY}}, true,
         [](Node& node, const Value* with) { return Value::of(node.generate(with[0].to_text(), with[1])); }},
        {"add_chat", INT, {{"messages", ARRAY}, {"options", DICTIONARY}}, true,
         [](Node& node, const Value* with) { return Value::of(node.generate_chat(with[0], with[1])); }},
        {"cancel", BOOL, {{"id", INT}}, false, [](Node& node, const Value* with) { return Value::of(node.cancel(with[0].to_int())); }},
        {"is_finished", BOOL, {}, false, [](Node& node, const Value*) { return Value::of(node.is_finished()); }},
        {"get_last_error", STRING, {}, false, [](Node& node, const Value*) { return Value::of(node.last_error()); }},
        {"trim", INT, {}, false, [](Node& node, const Value*) { return Value::of(node.trim()); }},
        {"stats", DICTIONARY, {}, false, [](Node& node, const Value*) { return node.stats(); }},
#define PROPERTY(name, type, value, read)                                                                          \
    {"get_" #name, type, {}, false, [](Node& node, const Value*) { return Value::of(node.name); }},                \
    {"set_" #name, NIL, {{"value", type}}, false, [](Node& node, const Value* with) { return node.name = with[0].read(), Value(); }}
        PROPERTY(model_path, STRING, text, to_text),
        PROPERTY(device, INT, int, to_int),
        PROPERTY(max_model_len, INT, int, to_int),
        PROPERTY(max_num_seqs, INT, int, to_int),
        PROPERTY(num_threads, INT, int, to_int),
        PROPERTY(kv_cache_bytes, INT, int, to_int),
        PROPERTY(gpu_memory_bytes, INT, int, to_int),
        PROPERTY(host_expert_layers, INT, int, to_int),
        PROPERTY(autostart, BOOL, bool, to_bool),
#undef PROPERTY
        {"get_step_budget_ms", FLOAT, {}, false, [](Node& node, const Value*) { return Value::of(node.step_budget_ms()); }},
        {"set_step_budget_ms", NIL, {{"value", FLOAT}}, false,
         [](Node& node, const Value* with) { return node.set_step_budget_ms(with[0].to_float()), Value(); }},
    };
    return all;
}

struct Property {
    const char* name;
    GDExtensionVariantType type;
    uint32_t hint;
    const char* hint_string;
};

// In the order in which the inspector shows them.
const Property PROPERTIES[] = {
    // A folder or a file, for which there is no common hint.
    {"model_path", STRING, HINT_NONE, ""},
    {"autostart", BOOL, HINT_NONE, ""},
    {"step_budget_ms", FLOAT, HINT_RANGE, "0.1,100,0.1,or_greater"},
    {"device", INT, HINT_ENUM, "Auto,CPU,CUDA"},
    {"num_threads", INT, HINT_RANGE, "0,256,1,or_greater"},
    {"max_num_seqs", INT, HINT_RANGE, "0,256,1,or_greater"},
    {"max_model_len", INT, HINT_RANGE, "0,131072,1,or_greater"},
    {"kv_cache_bytes", INT, HINT_NONE, ""},
    {"gpu_memory_bytes", INT, HINT_NONE, ""},
    {"host_expert_layers", INT, HINT_RANGE, "-1,256,1,or_greater"},
};

// A description of a property or an argument, with the names to which it points.
class Info {
public:
    Info(const char* name, GDExtensionVariantType type, uint32_t hint = HINT_NONE, const char* hint_string = "")
        : name_(name), class_name_(""), hint_string_(hint_string) {
        info = {type, name_.get(), class_name_.get(), hint, hint_string_.get(), USAGE_DEFAULT};
    }
    GDExtensionPropertyInfo info;

private:
    Name name_;
    Name class_name_;
    String hint_string_;
};

// The instance that Godot keeps. Whoever calls a Node holds it too, because a handler of a signal may free the object.
using Instance = std::shared_ptr<Node>;
Instance held(GDExtensionClassInstancePtr instance) { return *static_cast<Instance*>(instance); }

// Converts as GDScript does for its own functions: int and float to each other, StringName to String, packed arrays to Array.
bool convert(Value& value, GDExtensionVariantType type) {
    GDExtensionVariantType is = value.type();
    if (is == type) return true;
    bool is_convertible = (type == FLOAT && is == INT) || (type == INT && is == FLOAT) || (type == STRING && value.is_text()) ||
                          (type == ARRAY && value.is_list());
    if (is_convertible) value = value.as(type);
    return is_convertible && value.type() == type;
}

void call(void* userdata, GDExtensionClassInstancePtr instance, const GDExtensionConstVariantPtr* arguments, GDExtensionInt count,
          GDExtensionVariantPtr result, GDExtensionCallError* error) {
    const Method& method = *static_cast<const Method*>(userdata);
    GDExtensionInt most = static_cast<GDExtensionInt>(method.arguments.size());
    GDExtensionInt least = most - (method.has_default ? 1 : 0);
    if (count < least || count > most) {
        error->error = count < least ? GDEXTENSION_CALL_ERROR_TOO_FEW_ARGUMENTS : GDEXTENSION_CALL_ERROR_TOO_MANY_ARGUMENTS;
        error->expected = static_cast<int32_t>(count < least ? least : most);
        return;
    }
    std::vector<Value> values;
    for (GDExtensionInt i = 0; i < most; i++) {
        values.push_back(i < count ? Value::copy(arguments[i]) : Value::dictionary());
        if (convert(values.back(), method.arguments[static_cast<size_t>(i)].type)) continue;
        error->error = GDEXTENSION_CALL_ERROR_INVALID_ARGUMENT;
        error->argument = static_cast<int32_t>(i);
        error->expected = method.arguments[static_cast<size_t>(i)].type;
        return;
    }
    Instance node = held(instance);
    error->error = GDEXTENSION_CALL_OK;
    method.call(*node, values.data()).store(result);
}

// As `call`, from code that knows the types: arguments and result are the values themselves.
void call_typed(void* userdata, GDExtensionClassInstancePtr instance, const GDExtensionConstTypePtr* arguments, GDExtensionTypePtr result) {
    const Method& method = *static_cast<const Method*>(userdata);
    std::vector<Value> values;
    for (size_t i = 0; i < method.arguments.size(); i++) values.push_back(Value::of_typed(method.arguments[i].type, arguments[i]));
    Instance node = held(instance);
    Value returned = method.call(*node, values.data());
    if (method.returns != NIL) returned.store_typed(method.returns, result);
}

GDExtensionObjectPtr create(void*, GDExtensionBool notify) {
    GDExtensionObjectPtr object = godot::api.classdb_construct_object2(Name("Node").get());
    godot::api.object_set_instance(object, Name(CLASS).get(), new Instance(std::make_shared<Node>(object)));
    if (notify) {
        // NOTIFICATION_POSTINITIALIZE, which the creator of an object sends.
        Value what = Value::of(int64_t{0});
        Value::of_object(object).call("notification", {&what});
    }
    return object;
}

void destroy(void*, GDExtensionClassInstancePtr instance) {
    Instance* node = static_cast<Instance*>(instance);
    (*node)->free();
    delete node;
}

void notify(GDExtensionClassInstancePtr instance, int32_t what, GDExtensionBool) {
    if (what == NOTIFICATION_READY) {
        Instance node = held(instance);
        node->ready();
    } else if (what == NOTIFICATION_INTERNAL_PROCESS) {
        Instance node = held(instance);
        node->step();
    }
}

void register_method(const Method& method) {
    Name name(method.name);
    Info returned("", method.returns);
    std::vector<std::unique_ptr<Info>> infos;
    std::vector<GDExtensionPropertyInfo> arguments;
    std::vector<GDExtensionClassMethodArgumentMetadata> metadata(method.arguments.size(), GDEXTENSION_METHOD_ARGUMENT_METADATA_NONE);
    for (const Argument& argument : method.arguments) {
        infos.push_back(std::make_unique<Info>(argument.name, argument.type));
        arguments.push_back(infos.back()->info);
    }
    Value empty = Value::dictionary();
    GDExtensionVariantPtr defaults[] = {empty.raw()};
    GDExtensionClassMethodInfo info = {};
    info.name = name.get();
    info.method_userdata = const_cast<Method*>(&method);
    info.call_func = call;
    info.ptrcall_func = call_typed;
    info.method_flags = GDEXTENSION_METHOD_FLAGS_DEFAULT;
    info.has_return_value = method.returns != NIL;
    info.return_value_info = &returned.info;
    info.argument_count = static_cast<uint32_t>(arguments.size());
    info.arguments_info = arguments.data();
    info.arguments_metadata = metadata.data();
    info.default_argument_count = method.has_default ? 1 : 0;
    info.default_arguments = defaults;
    godot::api.classdb_register_extension_class_method(library, Name(CLASS).get(), &info);
}

// A signal with the id of a request and with what it is about.
void register_signal(const char* signal, const std::vector<Argument>& about) {
    std::vector<std::unique_ptr<Info>> infos;
    infos.push_back(std::make_unique<Info>("id", INT));
    for (const Argument& one : about) infos.push_back(std::make_unique<Info>(one.name, one.type));
    std::vector<GDExtensionPropertyInfo> arguments;
    for (const auto& info : infos) arguments.push_back(info->info);
    godot::api.classdb_register_extension_class_signal(library, Name(CLASS).get(), Name(signal).get(), arguments.data(),
                                                       static_cast<GDExtensionInt>(arguments.size()));
}

void initialize(void*, GDExtensionInitializationLevel level) {
    if (level != GDEXTENSION_INITIALIZATION_SCENE) return;
    GDExtensionClassCreationInfo4 info = {};
    info.is_exposed = true;
    // The editor shows a placeholder, which neither opens a model nor steps.
    info.is_runtime = true;
    info.notification_func = notify;
    info.create_instance_func = create;
    info.free_instance_func = destroy;
    godot::api.classdb_register_extension_class4(library, Name(CLASS).get(), Name("Node").get(), &info);
    for (const Method& method : methods()) register_method(method);
    for (const Property& property : PROPERTIES) {
        Info shown(property.name, property.type, property.hint, property.hint_string);
        std::string name = property.name;
        godot::api.classdb_register_extension_class_property(library, Name(CLASS).get(), &shown.info, Name("set_" + name).get(),
                                                             Name("get_" + name).get());
    }
    register_signal("text_generated", {{"text", STRING}});
    register_signal("reasoning_generated", {{"text", STRING}});
    register_signal("tool_called", {{"name", STRING}, {"arguments", DICTIONARY}});
    register_signal("message_completed", {{"message", DICTIONARY}});
    register_signal("finished", {{"reason", STRING}});
    register_signal("failed", {{"message", STRING}});
}

void deinitialize(void*, GDExtensionInitializationLevel level) {
    if (level == GDEXTENSION_INITIALIZATION_SCENE) godot::api.classdb_unregister_extension_class(library, Name(CLASS).get());
}

}  // namespace

// The entry that nanovllm.gdextension names.
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
extern "C" EXPORT GDExtensionBool nanovllm_godot_init(GDExtensionInterfaceGetProcAddress get_proc_address, GDExtensionClassLibraryPtr self,
                                                      GDExtensionInitialization* initialization) {
    if (!godot::load(get_proc_address)) return false;
    library = self;
    initialization->minimum_initialization_level = GDEXTENSION_INITIALIZATION_SCENE;
    initialization->userdata = nullptr;
    initialization->initialize = initialize;
    initialization->deinitialize = deinitialize;
    return true;
}
