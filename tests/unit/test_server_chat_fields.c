/* What each chat API refuses: fields of a wrong type, and prompts past the window. */
#include "../chat_api.h"

struct wrong { const struct ds_route *route; const char *param, *body; };

static void check_wrong(const struct wrong *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char body[1024], want[128];
        bool chat = t[i].route == ds_routes_chat, responses = t[i].route == ds_routes_responses;
        snprintf(body, sizeof body, "{%s, %s}", t[i].body, chat ? "'messages': [{'role': 'user', 'content': 'q'}]"
                 : responses ? "'input': 'q'" : "'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}]");
        if (strstr(t[i].body, "'messages'") || strstr(t[i].body, "'input':"))
            snprintf(body, sizeof body, "{%s%s}", t[i].body, chat || responses ? "" : ", 'max_tokens': 9");
        const char *got = prompt_of(t[i].route, q(body));
        snprintf(want, sizeof want, "400 %s: ", t[i].param);
        CHECK_MSG(!strncmp(got, want, strlen(want)) && strstr(got + strlen(want), t[i].param), "%s\n--- gave\n%s", body, got);
    }
}
#define CHECK_WRONG(t) check_wrong(t, sizeof t / sizeof *t)

/* Every field has a type, a wrong one is refused by its name, in a sentence that has the name too. */
static void fields_of_chat(void)
{
#define ONE(m) "'messages': [{'role': 'user', 'content': 'q'}, " m "]"
#define CALLED(c) ONE("{'role': 'assistant', 'tool_calls': [" c "]}")
    static const struct wrong t[] = {
        { C, "messages", "'messages': []" }, { C, "messages", "'messages': {}" }, { C, "messages", "'messages': null" },
        { C, "messages[1]", ONE("5") }, { C, "messages[1].role", ONE("{}") }, { C, "messages[1].role", ONE("{'role': 5}") },
        { C, "messages[1].role", ONE("{'role': 'use'}") }, { C, "messages[1].content", ONE("{'role': 'user', 'content': 5}") },
        { C, "messages[1].content[0]", ONE("{'role': 'user', 'content': [5]}") },
        { C, "messages[1].content[0].type", ONE("{'role': 'user', 'content': [{'type': 5}]}") },
        { C, "messages[1].content[0].text", ONE("{'role': 'user', 'content': [{'type': 'text'}]}") },
        { C, "messages[1].content[0].text", ONE("{'role': 'user', 'content': [{'type': 'text', 'text': 5}]}") },
        { C, "messages[1].name", ONE("{'role': 'user', 'name': 'a\\u0000b'}") }, { C, "messages[1].name", ONE("{'role': 'user', 'name': 5}") },
        { C, "messages[1].tool_call_id", ONE("{'role': 'tool', 'tool_call_id': 5}") },
        { C, "messages[1].reasoning_content", ONE("{'role': 'assistant', 'reasoning_content': 5}") },
        { C, "messages[1].refusal", ONE("{'role': 'assistant', 'refusal': []}") },
        { C, "messages[1].function_call", ONE("{'role': 'assistant', 'function_call': {'name': 'f'}}") },
        { C, "messages[1].tool_calls", ONE("{'role': 'assistant', 'tool_calls': {}}") }, { C, "messages[1].tool_calls[0]", CALLED("5") },
        { C, "messages[1].tool_calls[0].id", CALLED("{'id': 5, 'function': {'name': 'f'}}") },
        { C, "messages[1].tool_calls[0].type", CALLED("{'type': 'custom', 'function': {'name': 'f'}}") },
        { C, "messages[1].tool_calls[0].function", CALLED("{'function': 'f'}") }, { C, "messages[1].tool_calls[0].function", CALLED("{}") },
        { C, "messages[1].tool_calls[0].function.name", CALLED("{'function': {'name': 'a\\u0000b'}}") },
        { C, "messages[1].tool_calls[0].function.name", CALLED("{'function': {'name': ''}}") },
        { C, "messages[1].tool_calls[0].function.arguments", CALLED("{'function': {'name': 'f', 'arguments': 5}}") },
        { C, "tools", "'tools': {}" }, { C, "tools[0]", "'tools': [5]" }, { C, "tools[0].type", "'tools': [{'type': 5}]" },
        { C, "tools[0].type", "'tools': [{'type': 'custom', 'custom': {'name': 'f'}}]" },
        { C, "tools[0].function", "'tools': [{'type': 'function'}]" }, { C, "tools[0].function.name", "'tools': [{'function': {}}]" },
        { C, "tools[0].function.name", "'tools': [{'function': {'name': 'a\\u0000'}}]" },
        { C, "tools[0].function.description", "'tools': [{'function': {'name': 'f', 'description': 5}}]" },
        { C, "tools[0].function.parameters", "'tools': [{'function': {'name': 'f', 'parameters': []}}]" },
        { C, "tools[0].function.strict", "'tools': [{'function': {'name': 'f', 'strict': 1}}]" },
        { C, "tool_choice", "'tool_choice': 5" }, { C, "tool_choice", "'tool_choice': 'some'" },
        { C, "tool_choice.type", "'tool_choice': {'type': 'allowed_tools'}" }, { C, "tool_choice.function", "'tool_choice': {'type': 'function'}" },
        { C, "tool_choice.function.name", "'tool_choice': {'type': 'function', 'function': {'name': 5}}" },
        { C, "parallel_tool_calls", "'parallel_tool_calls': 'no'" }, { C, "reasoning_effort", "'reasoning_effort': 5" },
        { C, "reasoning_effort", "'reasoning_effort': 'hi'" }, { C, "reasoning_effort", "'reasoning_effort': ''" },
        { C, "reasoning_effort", "'reasoning_effort': 'hard'" }, { C, "max_completion_tokens", "'max_completion_tokens': -1" },
        { C, "max_completion_tokens", "'max_completion_tokens': 99999999999999999999999" }, { C, "n", "'n': 18446744073709551616" },
        { C, "seed", "'seed': 9223372036854775808" }, { C, "seed", "'seed': -9223372036854775809" }, { C, "n", "'n': 1e999" },
        { C, "logprobs", "'logprobs': 3" }, { C, "top_logprobs", "'logprobs': true, 'top_logprobs': 21" }, { C, "top_logprobs", "'top_logprobs': 2" },
        { C, "stream_options", "'stream_options': true" }, { C, "stream_options.include_usage", "'stream_options': {'include_usage': 1}" },
        { C, "response_format", "'response_format': 'text'" }, { C, "response_format.type", "'response_format': {'type': 'json_object'}" },
        { C, "chat_template_kwargs", "'chat_template_kwargs': 5" },
        { C, "chat_template_kwargs.enable_thinking", "'chat_template_kwargs': {'enable_thinking': 'yes'}" },
        { C, "functions", "'functions': [{'name': 'f'}]" }, { C, "function_call", "'function_call': 'auto'" },
        { C, "modalities", "'modalities': ['text', 'audio']" }, { C, "modalities", "'modalities': 'text'" }, { C, "audio", "'audio': {'voice': 'x'}" },
        { C, "web_search_options", "'web_search_options': {'a': 1}" }, { C, "verbosity", "'verbosity': 'loud'" }, { C, "user", "'user': 5" },
        { C, "metadata", "'metadata': []" }, { C, "store", "'store': 'no'" }, { C, "service_tier", "'service_tier': 1" },
        { C, "logit_bias", "'logit_bias': {' 1': 1}" }, { C, "logit_bias", "'logit_bias': {'+1': 1}" }, { C, "logit_bias", "'logit_bias': {'1 ': 1}" },
        { C, "logit_bias", "'logit_bias': {'': 1}" }, { C, "logit_bias", "'logit_bias': {'01': 1}" }, { C, "logit_bias", "'logit_bias': {'-1': 1}" },
        { C, "audio", "'audio': false" }, { C, "audio", "'audio': {}" }, { C, "functions", "'functions': {}" }, { C, "functions", "'functions': false" },
        { C, "function_call", "'function_call': []" }, { C, "web_search_options", "'web_search_options': []" }, { C, "metadata.a", "'metadata': {'a': 5}" },
        { C, "messages[1].audio", ONE("{'role': 'assistant', 'content': 'a', 'audio': false}") },
        { C, "messages[1].content[0].cache_control", ONE("{'role': 'user', 'content': [{'type': 'text', 'text': 'a', 'cache_control': 5}]}") },
        { C, "stream_options.a", "'stream_options': {'a': 1e999}" }, { C, "x[1].y[0]", "'x': [{'z': [1, 2]}, {'y': [1e400]}]" },
        { C, "stop", "'stop': 'a\\u0000'" }, { C, "model", "'model': 'a\\u0000'" }, { C, "model", "'model': []" },
    };
    CHECK_WRONG(t);
}

static void fields_of_responses(void)
{
#define ITEM(i) "'input': ['x', " i "]"
    static const struct wrong t[] = {
        { R, "input", "'input': []" }, { R, "input", "'input': null" }, { R, "input", "'input': 5" }, { R, "input", "'input': {}" },
        { R, "input[0]", "'input': [5]" }, { R, "input[0].type", "'input': [{'type': 5}]" }, { R, "input[0].type", "'input': [{'type': 'image'}]" },
        { R, "input[0].type", "'input': [{'type': 'item_reference', 'id': 'x'}]" },
        { R, "input[0].role", "'input': [{'role': 'tool'}]" }, { R, "input[0].content", "'input': [{'role': 'user', 'content': 5}]" },
        { R, "input[0].content[0].type", "'input': [{'role': 'user', 'content': [{'type': 'input_image'}]}]" },
        { R, "input[0].name", "'input': [{'type': 'function_call', 'arguments': '{}'}]" },
        { R, "input[0].name", "'input': [{'type': 'function_call', 'name': 'a\\u0000', 'arguments': '{}'}]" },
        { R, "input[0].call_id", "'input': [{'type': 'function_call', 'name': 'f', 'call_id': 5}]" },
        { R, "input[0].id", "'input': [{'role': 'user', 'id': 5}]" }, { R, "input[0].status", "'input': [{'role': 'user', 'status': 5}]" },
        { R, "input[0].arguments", "'input': [{'type': 'function_call', 'name': 'f', 'arguments': 5}]" },
        { R, "input[0].input", "'input': [{'type': 'custom_tool_call', 'name': 'f', 'input': 5}]" },
        { R, "input[0].output", "'input': [{'type': 'function_call_output', 'output': 5}]" },
        { R, "input[0].summary", "'input': [{'type': 'reasoning', 'summary': 'x'}]" },
        { R, "input[0].content[0].text", "'input': [{'type': 'reasoning', 'content': [{'text': 5}]}]" },
        { R, "input[0].summary[0]", "'input': [{'type': 'reasoning', 'summary': ['x']}]" },
        { R, "input[0].summary[0].type", "'input': [{'type': 'reasoning', 'summary': [{'type': 'text', 'text': 'a'}]}]" },
        { R, "input[0].summary[0].type", "'input': [{'type': 'reasoning', 'summary': [{'type': 5}], 'content': [{'text': 'a'}]}]" },
        { R, "input[0].content[0].type", "'input': [{'type': 'reasoning', 'content': [{'type': 'output_text', 'text': 'a'}]}]" },
        { R, "input[0].content[1]", "'input': [{'type': 'reasoning', 'content': [{'type': 'reasoning_text', 'text': 'a'}, 5]}]" },
        { R, "input[0].encrypted_content", "'input': [{'type': 'reasoning', 'encrypted_content': 5}]" },
        { R, "input[0].content[0].annotations", "'input': [{'role': 'assistant', 'content': [{'type': 'output_text', 'text': 'a', 'annotations': 5}]}]" },
        { R, "previous_response_id", "'previous_response_id': false" }, { R, "previous_response_id", "'previous_response_id': []" },
        { R, "previous_response_id", "'previous_response_id': {}" }, { R, "conversation", "'conversation': false" },
        { R, "conversation", "'conversation': []" }, { R, "conversation", "'conversation': {}" }, { R, "background", "'background': []" },
        { R, "background", "'background': {}" }, { R, "prompt", "'prompt': false" }, { R, "prompt", "'prompt': []" }, { R, "prompt", "'prompt': {}" },
        { R, "metadata.a", "'metadata': {'a': []}" }, { R, "context_management", "'context_management': {}" },
        { R, "instructions", "'instructions': 5" }, { R, "max_output_tokens", "'max_output_tokens': 0" }, { R, "reasoning", "'reasoning': 'high'" },
        { R, "reasoning.effort", "'reasoning': {'effort': 'hard'}" }, { R, "reasoning.summary", "'reasoning': {'summary': 5}" },
        { R, "include", "'include': 'all'" }, { R, "include", "'include': [5]" }, { R, "include", "'include': ['message.output_text.logprobs']" },
        { R, "include", "'include': ['file_search_call']" }, { R, "include", "'include': ['']" }, { R, "truncation", "'truncation': 'some'" },
        { R, "truncation", "'truncation': true" }, { R, "top_logprobs", "'top_logprobs': 'x'" }, { R, "top_logprobs", "'top_logprobs': 21" },
        { R, "top_logprobs", "'top_logprobs': 2" }, { R, "previous_response_id", "'previous_response_id': 'x'" },
        { R, "conversation", "'conversation': 'x'" }, { R, "prompt", "'prompt': {'id': 'x'}" }, { R, "background", "'background': true" },
        { R, "text", "'text': 'x'" }, { R, "text.format", "'text': {'format': 'text'}" },
        { R, "text.format.type", "'text': {'format': {'type': 'json_schema'}}" }, { R, "text.verbosity", "'text': {'verbosity': 5}" },
        { R, "max_tool_calls", "'max_tool_calls': -1" }, { R, "store", "'store': 1" }, { R, "metadata", "'metadata': 'x'" },
        { R, "tools[0].name", "'tools': [{'type': 'namespace', 'tools': []}]" },
        { R, "tools[0].tools", "'tools': [{'type': 'namespace', 'name': 'a', 'tools': {}}]" },
        { R, "tools[0].tools[0].name", "'tools': [{'type': 'namespace', 'name': 'a', 'tools': [{'type': 'function'}]}]" },
        { R, "tools[0].tools[0].parameters", "'tools': [{'type': 'namespace', 'name': 'a', 'tools': [{'name': 'f', 'parameters': 5}]}]" },
        { R, "input[0].namespace", "'input': [{'type': 'function_call', 'name': 'f', 'namespace': 5}]" },
        { R, "tools", "'tools': 5" }, { R, "tools[0]", "'tools': ['f']" }, { R, "tools[0].type", "'tools': [{'type': 5}]" },
        { R, "tools[0].name", "'tools': [{'type': 'function'}]" }, { R, "tools[0].name", "'tools': [{'type': 'custom', 'name': ''}]" },
        { R, "tools[0].format.type", "'tools': [{'type': 'custom', 'name': 'p', 'format': {'type': 'xml'}}]" },
        { R, "tools[0].format", "'tools': [{'type': 'custom', 'name': 'p', 'format': 'text'}]" },
        { R, "tool_choice", "'tool_choice': 'x'" }, { R, "tool_choice", "'tool_choice': 5" },
        { R, "tool_choice.type", "'tool_choice': {'type': 'web_search'}" },
        { R, "tool_choice.name", "'tool_choice': {'type': 'function'}" }, { R, "stream", "'stream': 1" },
    };
    CHECK_WRONG(t);
    EXPECT(RESPONSES(", 'include': ['reasoning.encrypted_content'], 'truncation': 'auto', 'top_logprobs': 0, 'previous_response_id': null"),
           USER "q" END ASSISTANT "<think>\n");
}

static void fields_of_messages(void)
{
#define TURN(c) "'messages': [{'role': 'user', 'content': [" c "]}]"
    static const struct wrong t[] = {
        { M, "system[0].cache_control", "'system': [{'type': 'text', 'text': 'a', 'cache_control': 'x'}]" },
        { M, "system[0].cache_control", "'system': [{'type': 'text', 'text': '" NONCE "', 'cache_control': 'x'}]" },
        { M, "tools[0].cache_control", "'tools': [{'name': 'f', 'cache_control': []}]" },
        { M, "tools[0].cache_control", "'tools': [{'type': 'web_search_20250305', 'name': 'web_search', 'cache_control': 5}]" },
        { M, "context_management.edits", "'context_management': {'edits': {}}" }, { M, "context_management.edits[0]", "'context_management': {'edits': [5]}" },
        { M, "context_management.edits[0].type", "'context_management': {'edits': [{'type': 5}]}" }, { M, "container", "'container': false" },
        { M, "mcp_servers", "'mcp_servers': {}" }, { M, "output_format", "'output_format': []" },
        { M, "output_config.format", "'output_config': {'format': 5}" },
        { M, "messages", "'messages': []" }, { M, "messages[0]", "'messages': ['q']" }, { M, "messages[0].role", "'messages': [{'role': 'tool'}]" },
        { M, "messages[0].content", "'messages': [{'role': 'user', 'content': 5}]" }, { M, "messages[0].content[0]", TURN("5") },
        { M, "messages[0].content[0].type", TURN("{}") }, { M, "messages[0].content[0].type", TURN("{'type': 5}") },
        { M, "messages[0].content[0].type", TURN("{'type': 'image'}") }, { M, "messages[0].content[0].text", TURN("{'type': 'text'}") },
        { M, "messages[0].content[0].text", TURN("{'type': 'text', 'text': 5}") },
        { M, "messages[0].content[0].cache_control", TURN("{'type': 'text', 'text': '', 'cache_control': 5}") },
        { M, "messages[0].content[0].tool_use_id", TURN("{'type': 'tool_result', 'tool_use_id': 5}") },
        { M, "messages[0].content[0].is_error", TURN("{'type': 'tool_result', 'is_error': 'no'}") },
        { M, "messages[0].content[0].content", TURN("{'type': 'tool_result', 'content': 5}") },
        { M, "messages[0].content[0].content[0]", TURN("{'type': 'tool_result', 'content': [5]}") },
        { M, "messages[0].content[0].content[0].type", TURN("{'type': 'tool_result', 'content': [{'type': 'image'}]}") },
        { M, "messages[0].content[0].content[0].text", TURN("{'type': 'tool_result', 'content': [{'type': 'text', 'text': 5}]}") },
        { M, "messages[0].content[0].name", "'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'x'}]}]" },
        { M, "messages[0].content[0].id", "'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 5, 'name': 'f'}]}]" },
        { M, "messages[0].content[0].input", "'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'name': 'f', 'input': 5}]}]" },
        { M, "messages[0].content[0].thinking", "'messages': [{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 5}]}]" },
        { M, "system", "'system': 5" }, { M, "system[0].text", "'system': [{'type': 'text', 'text': 5}]" }, { M, "system[0]", "'system': [5]" },
        { M, "thinking", "'thinking': true" }, { M, "thinking.type", "'thinking': {'type': 5}" }, { M, "thinking.type", "'thinking': {'type': 'on'}" },
        { M, "thinking.budget_tokens", "'thinking': {'type': 'enabled', 'budget_tokens': 'x'}" },
        { M, "thinking.budget_tokens", "'thinking': {'type': 'enabled', 'budget_tokens': -1}" },
        { M, "tools", "'tools': {}" }, { M, "tools[0]", "'tools': [5]" }, { M, "tools[0].name", "'tools': [{'input_schema': {}}]" },
        { M, "tools[0].name", "'tools': [{'name': 'a\\u0000', 'input_schema': {}}]" },
        { M, "tools[0].input_schema", "'tools': [{'name': 'f', 'input_schema': 5}]" },
        { M, "tools[0].description", "'tools': [{'name': 'f', 'description': 5, 'input_schema': {}}]" },
        { M, "tool_choice", "'tool_choice': 'auto'" }, { M, "tool_choice.type", "'tool_choice': {'type': 'x'}" },
        { M, "tool_choice.name", "'tool_choice': {'type': 'tool'}" }, { M, "tool_choice.name", "'tool_choice': {'type': 'auto', 'name': 5}" },
        { M, "tool_choice.disable_parallel_tool_use", "'tool_choice': {'type': 'auto', 'disable_parallel_tool_use': 1}" },
        { M, "metadata", "'metadata': 5" }, { M, "metadata.user_id", "'metadata': {'user_id': 5}" },
        { M, "mcp_servers", "'mcp_servers': [{'url': 'x'}]" },
        { M, "output_config.format", "'output_config': {'format': {'type': 'json_schema'}}" }, { M, "output_config.effort", "'output_config': {'effort': 5}" },
        { M, "stop_sequences", "'stop_sequences': [5]" }, { M, "temperature", "'temperature': 'hot'" }, { M, "top_k", "'top_k': 1.5" },
    };
    CHECK_WRONG(t);
    struct ds_reply r;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {     /* counted by the same rules */
        char body[1024];
        if (!strcmp(t[i].param, "stop_sequences")) continue;
        snprintf(body, sizeof body, "{%s%s}", t[i].body, strstr(t[i].body, "'messages'") ? "" : ", 'messages': [{'role': 'user', 'content': 'q'}]");
        call(&r, ds_routes_messages + 1, q(body));
        CHECK_MSG(r.refusal.status == 400 && !strcmp(r.refusal.param, t[i].param), "%s gave %d %s", body, r.refusal.status, r.refusal.param);
        chat_reply_free(&r);
    }
}

/* Whole numbers that 64 bits do not hold are numbers all the same: where no field is meant, they are as near as doubles are. */
static void numbers_of_any_length(void)
{
    static const char call[] = "{'max_tokens': 9, 'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'name': 'f',"
        " 'input': {'a': 9223372036854775807, 'b': 9223372036854775808, 'c': -18446744073709551616, 'd': -9223372036854775808}}]},"
        " {'role': 'user', 'content': 'q'}]}";
    EXPECT_IN_ORDER(prompt_of(ds_routes_messages, q(call)), "9223372036854775807\n", "9.22337203685477e+18\n", "-1.844674407370955e+19\n",
                    "-9223372036854775808\n");
    EXPECT(CHAT(", 'n': 100000000000000000000"), "400 n: 'n' is 1e+20, expected 1 to 128");
    EXPECT(CHAT(", 'future': [100000000000000000000]"), USER "q" END ASSISTANT "<think>\n");
    EXPECT(CHAT(", 'n': -1e999"), "400 n: 'n' holds the number -1e999, which is out of every range");
}

/* A request's words in a refusal make no new line in a log. */
static void refusals_are_one_line(void)
{
    EXPECT(prompt_of(ds_routes_chat, q("{'messages': [{'role': 'a\\nb\\u0007', 'content': ''}]}")),
           "400 messages[0].role: 'messages[0].role' is 'a?b?', expected system, developer, user, assistant, tool or function");
    EXPECT(prompt_of(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': [{'type': 'x\\r\\ny'}]}]}")),
           "400 messages[0].content[0].type: 'messages[0].content[0].type' is 'x??y': only text is read here");
}

static void prompts_past_the_window(void)
{
    static char body[8192];
    snprintf(body, sizeof body, "{\"max_tokens\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"%05000d\"}]}", 0);
    EXPECT(prompt_of(ds_routes_chat, body), "400 messages: prompt is too long: 5021 tokens > 4096 maximum, which is the window");
    EXPECT(prompt_of(ds_routes_messages, body), "400 messages: prompt is too long: 5025 tokens > 4096 maximum, which is the window");
    struct ds_reply r;
    call(&r, ds_routes_messages + 1, body);
    EXPECT(r.body.n ? r.body.p : "", "{\"input_tokens\":5025}\n");
    chat_reply_free(&r);
}

/* To the last token: where not one more has room there is no answer to give, in any API, but tokens can be counted. */
static void prompts_that_fill_the_window(void)
{
    static const struct { const struct ds_route *route; const char *head, *tail; } t[] = {
        { ds_routes_chat, "{'messages': [{'role': 'user', 'content': '", "'}]}" },
        { ds_routes_messages, "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': '", "'}]}" },
        { ds_routes_responses, "{'input': '", "'}" }, { ds_routes_completions, "{'prompt': '", "'}" },
        { ds_routes_completions, "{'max_tokens': 0, 'prompt': '", "'}" },
        { ds_routes_chat, "{'max_tokens': 0, 'messages': [{'role': 'user', 'content': '", "'}]}" },
    };
    static char body[8192];
    struct ds_reply r;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        snprintf(body, sizeof body, "%s%s%s", q(t[i].head), "xx", q(t[i].tail));
        call(&r, t[i].route, body);
        REQUIRE(r.request && !r.refusal.status);
        size_t around = r.request->prompt.n - 2, needs = i < 4;
        chat_reply_free(&r);
        for (size_t n = 4094; n <= 4097; n++) {
            snprintf(body, sizeof body, "%s%0*d%s", q(t[i].head), (int)(n - around), 0, q(t[i].tail));
            call(&r, t[i].route, body);
            CHECK_MSG((r.refusal.status == 400) == (n + needs > 4096), "%s: %zu tokens gave %d", t[i].head, n, r.refusal.status);
            CHECK(!r.refusal.status || (r.refusal.code && !strcmp(r.refusal.code, "context_length_exceeded")));
            if (n == 4096 && needs) CHECK(strstr(r.refusal.msg, "prompt is too long: 4096 tokens > 4095 maximum, as an answer needs room"));
            chat_reply_free(&r);
        }
    }
}

static const struct ds_test tests[] = {
    { "fields_of_chat", fields_of_chat },
    { "fields_of_responses", fields_of_responses },
    { "fields_of_messages", fields_of_messages },
    { "numbers_of_any_length", numbers_of_any_length },
    { "refusals_are_one_line", refusals_are_one_line },
    { "prompts_past_the_window", prompts_past_the_window },
    { "prompts_that_fill_the_window", prompts_that_fill_the_window },
};

int main(int argc, char **argv) { return chat_api_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv); }
