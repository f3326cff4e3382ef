/* Tools in the chat APIs: results, forced calls, tools of other kinds, calls that come in parts. */
#include "../chat_api.h"

/* Agents send turns that hold results of tools alone, as the first that is left after a compaction too. */
static void results_of_tools_alone(void)
{
    static const char want[] = USER "<tool_response>\n19\n</tool_response>" END ASSISTANT CLOSED;
    static const char loop[] = ASSISTANT "<think>\nhm\n</think>\n\n" CALL END USER "<tool_response>\n19\n</tool_response>" END ASSISTANT CLOSED;
#define RESULT "{'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'x', 'content': '19'}]}"
    EXPECT(prompt_of(ds_routes_messages, q("{'max_tokens': 9, 'messages': [" RESULT "]}")), want);
    EXPECT(prompt_of(ds_routes_messages, q("{'max_tokens': 9, 'messages': [{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 'hm'},"
                                           " {'type': 'tool_use', 'id': 'x', 'name': 'f', 'input': {'a': 3}}]}, " RESULT "]}")), loop);
    EXPECT(prompt_of(ds_routes_responses, q("{'reasoning': {'effort': 'none'}, 'input': [{'type': 'function_call_output', 'call_id': 'x', 'output': '19'}]}")),
           want);
    EXPECT(prompt_of(ds_routes_chat, q("{'reasoning_effort': 'none', 'messages': [{'role': 'tool', 'content': '19'}]}")), want);
    EXPECT(prompt_of(ds_routes_chat, q("{'messages': [{'role': 'assistant', 'content': 'a'}]}")),
           "400 messages: a chat needs at least one message of the user, or a tool's result");
}

/* What a forced call begins with is part of the answer: when no call comes of it, the client gets every byte. */
static void forced_calls_that_fail(void)
{
    static const char body[] = "{'messages': [{'role': 'user', 'content': 'q'}], " TOOL ", 'tool_choice': %s}";
    static const struct { const char *choice, *pieces, *want; enum ds_finish why; } t[] = {
        { "'required'", "no|thing", "<tool_call>\\n<function=nothing", DS_FINISH_END },
        { "'required'", "f>\n<para", "<tool_call>\\n<function=f>\\n<para", DS_FINISH_LENGTH },
        { "{'type': 'function', 'function': {'name': 'f'}}", "no|thing", "<tool_call>\\n<function=f>\\nnothing", DS_FINISH_END },
        { "{'type': 'function', 'function': {'name': 'f'}}", "", "<tool_call>\\n<function=f>\\n", DS_FINISH_LENGTH },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char text[1024], want[128];
        snprintf(text, sizeof text, body, t[i].choice);
        snprintf(want, sizeof want, "\"content\":\"%s\"", t[i].want);
        EXPECT_IN_ORDER(answer_to(ds_routes_chat, q(text), t[i].pieces, t[i].why), want);
    }
    EXPECT_IN_ORDER(answer_to(ds_routes_messages, q("{'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}], 'tools': [{'name': 'f',"
                              " 'input_schema': " SCHEMA "}], 'tool_choice': {'type': 'any'}}"), "x y", DS_FINISH_END),
                    "\"text\":\"<tool_call>\\n<function=x y\"", "\"end_turn\"");
    EXPECT_IN_ORDER(answer_to(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'ab'}]}"), "cd",
                              DS_FINISH_END), "\"content\":\"cd\"");       /* a beginning that the client gave is not told back */
}

/* Items of tools that others run: a session that began elsewhere goes on, and the model sees what was done there. */
static void items_of_other_tools(void)
{
#define INPUT(items) prompt_of(R, q("{'reasoning': {'effort': 'none'}, 'input': [{'role': 'user', 'content': 'q'}, " items "]}"))
#define SAID(text) USER "q" END ASSISTANT CLOSED text
    static const char *const calls[] = { "web_search_call", "local_shell_call", "shell_call", "apply_patch_call", "image_generation_call",
                                         "tool_search_call", "file_search_call", "mcp_approval_request", "next_years_call" };
    static const char *const notes[] = { "compaction", "ghost_snapshot", "mcp_list_tools", "next_years_note" };
    char body[512], want[512];
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        snprintf(body, sizeof body, "{'reasoning': {'effort': 'none'}, 'input': [{'role': 'user', 'content': 'q'}, {'type': '%s', 'id': 'x',"
                 " 'action': {'a': 1}}, {'role': 'assistant', 'content': 'Well'}, {'role': 'user', 'content': 'r'}]}", calls[i]);
        snprintf(want, sizeof want, USER "q" END ASSISTANT "{\"type\": \"%s\", \"id\": \"x\", \"action\": {\"a\": 1}}\n\nWell" END
                 USER "r" END ASSISTANT CLOSED, calls[i]);
        EXPECT(prompt_of(R, q(body)), want);
    }
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        snprintf(body, sizeof body, "{'reasoning': {'effort': 'none'}, 'input': [{'role': 'user', 'content': 'q'}, {'type': '%s',"
                 " 'encrypted_content': 'gAAA'}]}", notes[i]);
        snprintf(want, sizeof want, USER "q" END USER "<system-reminder>\n{\"type\": \"%s\"}\n</system-reminder>" END ASSISTANT CLOSED, notes[i]);
        EXPECT(prompt_of(R, q(body)), want);
    }
    EXPECT_IN_ORDER(INPUT("{'role': 'assistant', 'content': 'Hm.'}, {'type': 'shell_call', 'call_id': 'x', 'action': {'commands': ['ls']}},"
                          " {'type': 'shell_call_output', 'call_id': 'x', 'output': [{'stdout': 'a', 'stderr': ''}]}"),
                    "Hm.\n\n{\"type\": \"shell_call\"", "{\"commands\": [\"ls\"]}", END USER "<tool_response>\n{\"type\": \"shell_call_output\"",
                    "\"stdout\": \"a\"", "\n</tool_response>" END ASSISTANT CLOSED);
    EXPECT_IN_ORDER(INPUT("{'type': 'local_shell_call', 'call_id': 'x'}, {'type': 'local_shell_call_output', 'call_id': 'x', 'output': 'a b'}"),
                    END USER "<tool_response>\na b\n</tool_response>");
    CHECK(!strstr(INPUT("{'type': 'image_generation_call', 'id': 'x', 'result': 'AAAA'}"), "AAAA"));
    EXPECT(INPUT("{'type': 'item_reference', 'id': 'x'}"),
           "400 input[1].type: 'input[1].type' is 'item_reference', but nothing is kept here: send the item itself");
    EXPECT_IN_ORDER(INPUT("{'type': 'computer_call_output', 'output': {'type': 'computer_screenshot'}}"), "400 input[1].type: ", "only text is read here");
    EXPECT_IN_ORDER(INPUT("{'type': 'input_text', 'text': 'q'}"), "400 input[1].type: ", "a part of a message and no item");
}

/* Tools with free text, as Codex patches files: a function with one string for the model, items of their own for the client. */
static void custom_tools_of_responses(void)
{
#define CUSTOM "'tools': [{'type': 'custom', 'name': 'patch', 'description': 'Edits.', 'format': {'type': 'grammar', 'syntax': 'lark',"   \
               " 'definition': 'start: x'}}]"
    EXPECT_IN_ORDER(prompt_of(R, q("{" CUSTOM ", 'input': ['x']}")), "400 input[0]: ");
    EXPECT_IN_ORDER(prompt_of(R, q("{" CUSTOM ", 'input': [{'role': 'user', 'content': 'q'}, {'type': 'custom_tool_call', 'call_id': 'x',"
                                   " 'name': 'patch', 'input': '*** a\\n'}, {'type': 'custom_tool_call_output', 'call_id': 'x', 'output': 'ok'}]}")),
                    "\"name\": \"patch\", \"description\": \"Edits.\\n\\nThe input follows this lark grammar:\\nstart: x\"",
                    "{\"input\": {\"type\": \"string\"}}", "\"required\": [\"input\"]", "<function=patch>\n<parameter=input>\n*** a\n\n</parameter>",
                    "<tool_response>\nok\n");
    static const char answer[] = "</think><tool_call>\n<function=patch>\n<parameter=input>\n*** \"a\"\n+b\n</parameter>\n</function>\n</tool_call>";
    EXPECT_IN_ORDER(answer_to(R, q("{" CUSTOM ", 'input': 'q'}"), answer, DS_FINISH_END),
                    "\"type\":\"custom_tool_call\",\"status\":\"completed\",\"call_id\":\"call_#\",\"name\":\"patch\","
                    "\"input\":\"*** \\\"a\\\"\\n+b\"}");
    EXPECT_IN_ORDER(answer_to(R, q("{" CUSTOM ", 'stream': true, 'tool_choice': {'type': 'custom', 'name': 'patch'}, 'input': 'q'}"),
                              "<parameter=input>\n*** \"a\"\n+b\n</parameter>\n</function>\n</tool_call>", DS_FINISH_END),
                    "event: response.output_item.added\n", "\"type\":\"custom_tool_call\",\"status\":\"in_progress\"", "\"input\":\"\"",
                    "event: response.custom_tool_call_input.delta\n", "event: response.custom_tool_call_input.done\n",
                    "\"input\":\"*** \\\"a\\\"\\n+b\"", "event: response.output_item.done\n",
                    "\"tool_choice\":{\"type\":\"custom\",\"name\":\"patch\"}");
}

/* The model sees the tools of a namespace one by one, the client gets its calls by namespace and name. */
static void tools_in_namespaces(void)
{
#define SPACES "'tools': [{'type': 'namespace', 'name': 'crm', 'description': 'x', 'tools': [{'type': 'function', 'name': 'f', 'parameters': " SCHEMA   \
               "}, {'type': 'custom', 'name': 'patch'}]}, {'type': 'function', 'name': 'f', 'parameters': " SCHEMA "}]"
    static const char call[] = "</think><tool_call>\n<function=crm.f>\n<parameter=a>\n3\n</parameter>\n</function>\n</tool_call>";
    EXPECT_IN_ORDER(prompt_of(R, q("{" SPACES ", 'input': [{'role': 'user', 'content': 'q'}, {'type': 'function_call', 'namespace': 'crm', 'name': 'f',"
                                   " 'call_id': 'x', 'arguments': '{}'}, {'type': 'function_call_output', 'call_id': 'x', 'output': '1'}]}")),
                    "\"name\": \"crm.f\"", "\"name\": \"crm.patch\"", "\"name\": \"f\"", "<tool_call>\n<function=crm.f>\n");
    EXPECT_IN_ORDER(answer_to(R, q("{" SPACES ", 'input': 'q'}"), call, DS_FINISH_END),
                    "\"type\":\"function_call\"", "\"name\":\"f\",\"namespace\":\"crm\",\"arguments\":\"{\\\"a\\\": 3}\"");
    EXPECT_IN_ORDER(answer_to(R, q("{" SPACES ", 'input': 'q', 'stream': true}"), call, DS_FINISH_END), "output_item.added",
                    "\"name\":\"f\",\"namespace\":\"crm\",\"arguments\":\"\"", "arguments.done", "\"name\":\"f\",\"arguments\":\"{",
                    "output_item.done", "\"namespace\":\"crm\"");
    EXPECT_IN_ORDER(answer_to(R, q("{" SPACES ", 'input': 'q'}"), "</think><tool_call>\n<function=crm.patch>\n<parameter=input>\nx\n</parameter>\n"
                              "</function>\n</tool_call>", DS_FINISH_END),
                    "\"type\":\"custom_tool_call\"", "\"name\":\"patch\",\"namespace\":\"crm\",\"input\":\"x\"");
    CHECK(!strstr(answer_to(R, q("{" SPACES ", 'input': 'q'}"), "</think>" CALL, DS_FINISH_END), "\"namespace\":\"crm\",\"arguments\""));
}

/* Of the tools that clients of Messages run without a schema of their own, the shell's is known. */
static void tools_without_schema(void)
{
#define BARE "{'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}], 'tools': [{'type': 'bash_20250124', 'name': 'bash'}, "                 \
             "{'type': 'text_editor_20250728', 'name': 'str_replace_based_edit_tool'}]}"
    const char *got = prompt_of(M, q(BARE));
    EXPECT_IN_ORDER(got, "\"name\": \"bash\"", "\"command\": {\"type\": \"string\"", "\"restart\": {\"type\": \"boolean\"");
    CHECK(!strstr(got, "str_replace_based") && strstr(noted, "'text_editor_20250728' is left out"));
    EXPECT_IN_ORDER(answer_to(M, q(BARE), "<tool_call>\n<function=bash>\n<parameter=command>\nls 1\n</parameter>\n</function>\n</tool_call>", DS_FINISH_END),
                    "\"type\":\"tool_use\"", "\"name\":\"bash\",\"input\":{\"command\": \"ls 1\"}");
}

/* A stream tells a call's texts while they are written; what a limit cuts never looks whole. */
static void calls_in_parts(void)
{
#define WRITE "'parameters': {'properties': {'t': {'type': 'string'}}}"
    static const char chat[] = "{'messages': [{'role': 'user', 'content': 'q'}], 'stream': true, 'tools': [{'function': {'name': 'w', " WRITE "}}]}";
    static const char messages[] = "{'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}], 'stream': true, 'tools': [{'name': 'w',"
                                   " 'input_schema': {'properties': {'t': {'type': 'string'}}}}]}";
    static const char responses[] = "{'input': 'q', 'stream': true, 'tools': [{'type': 'function', 'name': 'w', " WRITE "}]}";
    static const char begun[] = "</think><tool_call>\n<function=w>\n<parameter=t>\n|one \"1\"|\ntwo|", end[] = "\n</parameter>\n</function>\n</tool_call>";
    char whole[256];
    snprintf(whole, sizeof whole, "%s%s", begun, end);
    EXPECT_IN_ORDER(answer_to(C, q(chat), whole, DS_FINISH_END), "\"name\":\"w\",\"arguments\":\"\"}", "{\"arguments\":\"{\\\"t\\\": \\\"\"}",
                    "{\"arguments\":\"one \\\\\\\"1\\\\\\\"\"}", "{\"arguments\":\"\\\\ntwo\"}", "{\"arguments\":\"\\\"}\"}",
                    "\"finish_reason\":\"tool_calls\"");
    const char *cut = answer_to(C, q(chat), begun, DS_FINISH_LENGTH);
    EXPECT_IN_ORDER(cut, "\"name\":\"w\"", "{\"arguments\":\"\\\\ntwo\"}", "\"finish_reason\":\"length\"");
    CHECK(!strstr(cut, "\\\"}\"}") && !strstr(cut, "\"content\":\"<tool"));
    EXPECT_IN_ORDER(answer_to(M, q(messages), whole, DS_FINISH_END), "\"type\":\"tool_use\"", "\"partial_json\":\"{\\\"t\\\": \\\"\"",
                    "\"partial_json\":\"one \\\\\\\"1", "\"partial_json\":\"\\\"}\"", "content_block_stop", "\"stop_reason\":\"tool_use\"");
    EXPECT_IN_ORDER(answer_to(M, q(messages), begun, DS_FINISH_LENGTH), "\"partial_json\":\"\\\\ntwo\"", "content_block_stop",
                    "\"stop_reason\":\"max_tokens\"");
    EXPECT_IN_ORDER(answer_to(R, q(responses), whole, DS_FINISH_END), "\"delta\":\"{\\\"t\\\": \\\"\"", "\"delta\":\"one \\\\\\\"1",
                    "\"delta\":\"\\\\ntwo\"", "function_call_arguments.done", "\"arguments\":\"{\\\"t\\\": \\\"one \\\\\\\"1\\\\\\\"\\\\ntwo\\\"}\"",
                    "response.completed", "\"type\":\"function_call\"");
    cut = answer_to(R, q(responses), begun, DS_FINISH_LENGTH);
    EXPECT_IN_ORDER(cut, "\"delta\":\"\\\\ntwo\"", "response.incomplete", "\"output\":[]");
    CHECK(!strstr(cut, "arguments.done") && !strstr(cut, "output_item.done"));
}

/* The text of a custom tool is unwrapped while it comes, wherever it is split. */
static void custom_tools_in_parts(void)
{
    static const char call[] = "</think><tool_call>\n<function=patch>\n<parameter=input>\n"
                               "*** \"a\\b\"\t\001\n+caf\u00e9\n</parameter>\n</function>\n</tool_call>";
    char pieces[512];
    for (size_t step = 1; step < 12; step++) {
        size_t n = 0;
        for (size_t i = 0; call[i]; i++) {
            if (i && i % step == 0 && ((unsigned char)call[i] & 0xC0) != 0x80) pieces[n++] = '|';
            pieces[n++] = call[i];
        }
        pieces[n] = 0;
        const char *got = answer_to(R, q("{" CUSTOM ", 'input': 'q', 'stream': true}"), pieces, DS_FINISH_END);
        EXPECT_IN_ORDER(got, "custom_tool_call_input.delta", "custom_tool_call_input.done", "\"input\":\"*** \\\"a\\\\b\\\"\\t\\u0001\\n+caf\u00e9\"}",
                        "output_item.done");
        CHECK(step > 3 || strstr(strstr(got, "input.delta") + 60, "input.delta"));
    }
    EXPECT_IN_ORDER(answer_to(R, q("{" CUSTOM ", 'input': 'q'}"), "</think><tool_call>\n<function=patch>\n<parameter=file>\nx\n"
                              "</parameter>\n</function>\n</tool_call>", DS_FINISH_END), "\"input\":\"{\\\"file\\\": \\\"x\\\"}\"");
    const char *cut = answer_to(R, q("{" CUSTOM ", 'input': 'q', 'stream': true}"), "</think>"
                                "<tool_call>\n<function=patch>\n<parameter=input>\n*** a", DS_FINISH_LENGTH);
    CHECK(strstr(cut, "\"delta\":\"*** a\"") && !strstr(cut, "input.done") && !strstr(cut, "output_item.done"));
}

static const struct ds_test tests[] = {
    { "results_of_tools_alone", results_of_tools_alone },
    { "forced_calls_that_fail", forced_calls_that_fail },
    { "items_of_other_tools", items_of_other_tools },
    { "custom_tools_of_responses", custom_tools_of_responses },
    { "tools_in_namespaces", tools_in_namespaces },
    { "tools_without_schema", tools_without_schema },
    { "calls_in_parts", calls_in_parts },
    { "custom_tools_in_parts", custom_tools_in_parts },
};

int main(int argc, char **argv) { return chat_api_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv); }
