"""GGUF files of Mixture-of-Experts models for bench.py and offload.py: metadata before the tensors, and the end of the file."""


def begin_gguf(path, config, inner, kv_heads, architecture='olmoe', **options):
    """Returns a writer with the metadata of `config` (Hugging Face's keys), for experts of `inner` neurons and `kv_heads` heads
    of keys and values. The caller adds tensors."""
    import gguf
    out = gguf.GGUFWriter(str(path), architecture, **options)
    out.add_context_length(config['max_position_embeddings'])
    out.add_embedding_length(config['hidden_size'])
    out.add_block_count(config['num_hidden_layers'])
    out.add_feed_forward_length(inner)
    if architecture == 'qwen3moe':
        out.add_expert_feed_forward_length(inner)
        out.add_key_length(config['head_dim'])
        out.add_value_length(config['head_dim'])
    out.add_head_count(config['num_attention_heads'])
    out.add_head_count_kv(kv_heads)
    out.add_layer_norm_rms_eps(config['rms_norm_eps'])
    out.add_rope_freq_base(config['rope_theta'])
    out.add_expert_count(config['num_experts'])
    out.add_expert_used_count(config['num_experts_per_tok'])
    out.add_vocab_size(config['vocab_size'])
    out.add_tokenizer_model('no_vocab')
    return out


def end_gguf(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
